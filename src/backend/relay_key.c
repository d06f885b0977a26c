/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/relay_key.h"

#include "base/scoped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char secret_name[] = "relay.key";
static const char new_name[] = "relay.key.new";

/* 0; 1 when there is none; -1. */
static int read_secret(int state_dir, uint8_t secret[RELAY_SECRET_SIZE], struct error *err)
{
    scoped(fd_close) int fd =
        openat(state_dir, secret_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;

    if (fd < 0)
        return errno == ENOENT ? 1 : error_sys(err, "open %s", secret_name);
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size != RELAY_SECRET_SIZE ||
        read(fd, secret, RELAY_SECRET_SIZE) != RELAY_SECRET_SIZE)
        return error_set(err, ERR_INTERNAL, "%s in the state directory is damaged", secret_name);
    return 0;
}

/* Complete under its name or not there, also after a loss of power: sandboxes outlive both. */
static int make_secret(int state_dir, uint8_t secret[RELAY_SECRET_SIZE], struct error *err)
{
    scoped(fd_close) int directory = openat(state_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped(fd_close) int fd = -1;

    (void)unlinkat(state_dir, new_name, 0);
    fd = openat(state_dir, new_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || directory < 0)
        return error_sys(err, "create %s", secret_name);
    if (getrandom(secret, RELAY_SECRET_SIZE, 0) != RELAY_SECRET_SIZE)
        return error_sys(err, "get random bytes for %s", secret_name);
    if (write(fd, secret, RELAY_SECRET_SIZE) != RELAY_SECRET_SIZE || fsync(fd) < 0 ||
        renameat(state_dir, new_name, state_dir, secret_name) < 0 || fsync(directory) < 0)
        return error_sys(err, "write %s", secret_name);
    return 0;
}

int relay_secret_open(int state_dir, uint8_t out_secret[RELAY_SECRET_SIZE], struct error *err)
{
    uint8_t secret[RELAY_SECRET_SIZE];
    int result = read_secret(state_dir, secret, err);

    if (result > 0)
        result = make_secret(state_dir, secret, err);
    if (result == 0)
        memcpy(out_secret, secret, sizeof(secret));
    explicit_bzero(secret, sizeof(secret));
    return result;
}

void relay_key_derive(const uint8_t secret[RELAY_SECRET_SIZE], const char *sandbox_id,
                      uint8_t out_key[RELAY_KEY_SIZE])
{
    static const char purpose[] = "relay";
    struct hmac hmac;

    _Static_assert((int)RELAY_KEY_SIZE == (int)SHA256_SIZE, "the key is the MAC");
    hmac_init(&hmac, secret, RELAY_SECRET_SIZE);
    hmac_add(&hmac, purpose, strlen(purpose));
    hmac_add(&hmac, sandbox_id, strlen(sandbox_id));
    hmac_finish(&hmac, out_key);
    explicit_bzero(&hmac, sizeof(hmac));
}
