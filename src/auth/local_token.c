/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/local_token.h"

#include "auth/encoding.h"
#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"
#include "net/address.h"
#include "net/peer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECRET_BYTES = 32, NAME_BYTES = 32 };

static const char prefix[] = "sgt_";
static const char other_prefix[] = "e2b_"; /* for clients that accept no other */
static const char file_prefix[] = "token-";

void local_token_make(struct local_token *token)
{
    uint8_t secret[SECRET_BYTES];

    random_fill(secret, sizeof(secret));
    memcpy(token->text, prefix, sizeof(prefix));
    hex_encode(secret, sizeof(secret), token->text + strlen(prefix));
    explicit_bzero(secret, sizeof(secret));
}

bool local_token_is(const struct local_token *token, const char *given)
{
    size_t skipped = strlen(prefix);

    return given && strlen(given) == strlen(token->text) &&
           (str_starts_with(given, prefix) || str_starts_with(given, other_prefix)) &&
           CRYPTO_memcmp(given + skipped, token->text + skipped, strlen(token->text) - skipped) ==
               0;
}

/* --- the daemon's side ----------------------------------------------------------------------- */

int local_token_save(const struct local_token *token, int state_dir, unsigned port,
                     struct error *err)
{
    scoped(fd_close) int fd = -1;
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "%s%u", file_prefix, port);
    if (unlinkat(state_dir, name, 0) < 0 && errno != ENOENT)
        return error_sys(err, "remove the old %s", name);
    fd = openat(state_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(err, "make %s in the state directory", name);
    if (dprintf(fd, "%s\n", token->text) < 0)
        return error_sys(err, "write %s", name);
    return 0;
}

void local_token_forget(int state_dir)
{
    int copy = openat(state_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *entry;

    if (!entries) {
        fd_close(copy);
        return;
    }
    while ((entry = readdir(entries)))
        if (str_starts_with(entry->d_name, file_prefix))
            (void)unlinkat(state_dir, entry->d_name, 0);
    closedir(entries);
}

/* --- the client's side ----------------------------------------------------------------------- */

static unsigned port_of(const struct address *address)
{
    return address->storage.ss_family == AF_INET
               ? ntohs(((const struct sockaddr_in *)&address->storage)->sin_port)
               : ntohs(((const struct sockaddr_in6 *)&address->storage)->sin6_port);
}

char *local_token_find(const char *state_dir, const char *url)
{
    scoped(free) char *path = NULL;
    scoped(fd_close) int fd = -1;
    char text[LOCAL_TOKEN_SIZE + 1] = "";
    struct address address;
    struct stat status;

    if (address_parse(&address, url, NULL) < 0 || address.is_unix || !address_is_loopback(&address))
        return NULL;
    path = xasprintf("%s/%s%u", state_dir, file_prefix, port_of(&address));
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
        read(fd, text, sizeof(text) - 1) <= 0)
        return NULL;
    text[strcspn(text, "\r\n")] = '\0';
    return str_starts_with(text, prefix) ? xstrdup(text) : NULL;
}
