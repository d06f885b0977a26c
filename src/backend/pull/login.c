/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/pull/login.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "base/str.h"
#include "wire/base64.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAXIMUM = 1024 * 1024, PASSWORD_MAXIMUM = 16 * 1024 };

void registry_login_fini(struct registry_login *login)
{
    free(login->user);
    free(login->password);
    free(login->helper);
    *login = (struct registry_login){ 0 };
}

char *registry_login_basic(const struct registry_login *login)
{
    scoped(free) char *pair = NULL;
    scoped(free) char *encoded = NULL;

    if (!login->user)
        return NULL;
    pair = xasprintf("%s:%s", login->user, login->password);
    encoded = base64_encode(pair, strlen(pair));
    return xasprintf("Basic %s", encoded);
}

/* --- given ----------------------------------------------------------------------------------- */

int registry_login_read(struct registry_login *login, const char *user, const char *password_file,
                        struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(PASSWORD_MAXIMUM);
    scoped(fd_close) int opened = -1;
    bool is_stdin = str_equal(password_file, "-");

    if (!is_stdin) {
        opened = open(password_file, O_RDONLY | O_CLOEXEC);
        if (opened < 0)
            return error_sys(err, "open %s", password_file);
    }
    if (fd_read_all(is_stdin ? STDIN_FILENO : opened, &text) < 0)
        return error_sys(err, "read the password from %s", is_stdin ? "stdin" : password_file);
    if (text.length && text.data[text.length - 1] == '\n')
        text.length--;
    if (text.length && text.data[text.length - 1] == '\r')
        text.length--;
    if (text.length == 0 || memchr(text.data, '\0', text.length))
        return error_set(err, ERR_INVALID, "the password is empty or has a NUL in it");
    registry_login_fini(login);
    login->user = xstrdup(user);
    login->password = buffer_steal_text(&text);
    return 0;
}

/* --- docker's -------------------------------------------------------------------------------- */

/* "https://index.docker.io/v1/" and "index.docker.io" are docker.io; "https://HOST/v2/" is HOST. */
static bool names_registry(const char *key, const char *registry)
{
    const char *host = strstr(key, "://") ? strstr(key, "://") + 3 : key;
    size_t length = strcspn(host, "/");

    if (str_equal(registry, "docker.io") && length == strlen("index.docker.io") &&
        strncmp(host, "index.docker.io", length) == 0)
        return true;
    return length == strlen(registry) && strncmp(host, registry, length) == 0;
}

static const json_t *find_entry(const json_t *object, const char *registry)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        if (names_registry(key, registry))
            return value;
    }
    return NULL;
}

static int take_auth(struct registry_login *login, const char *auth, struct error *err)
{
    scoped(buffer_fini) struct buffer pair = BUFFER_INIT(PASSWORD_MAXIMUM);
    const char *text;
    const char *colon;

    if (base64_decode(auth, strlen(auth), &pair) < 0 ||
        (pair.length && memchr(pair.data, '\0', pair.length)))
        return error_set(err, ERR_INVALID, "an entry of \"auths\" is not base64");
    text = buffer_text(&pair);
    colon = strchr(text, ':');
    if (!colon || colon == text)
        return error_set(err, ERR_INVALID, "an entry of \"auths\" is not a name and a password");
    login->user = xstrndup(text, (size_t)(colon - text));
    login->password = xstrdup(colon + 1);
    return 0;
}

int registry_login_parse(struct registry_login *login, const char *registry, const void *data,
                         size_t length, struct error *err)
{
    scoped(json_decref) json_t *document = json_read(data, length, err);
    const char *helper;
    const char *auth;

    if (!document)
        return -1;
    auth = json_string_value(
        json_object_get(find_entry(json_object_get(document, "auths"), registry), "auth"));
    if (!str_is_empty(auth))
        return take_auth(login, auth, err);
    helper = json_string_value(find_entry(json_object_get(document, "credHelpers"), registry));
    if (!helper)
        helper = json_string_value(json_object_get(document, "credsStore"));
    if (!str_is_empty(helper))
        login->helper = xasprintf("docker-credential-%s", helper);
    return 0;
}

static char *config_path(void)
{
    const char *directory = getenv("DOCKER_CONFIG");
    const char *home = getenv("HOME");

    if (!str_is_empty(directory))
        return path_join(directory, "config.json");
    return str_is_empty(home) ? NULL : path_join(home, ".docker/config.json");
}

int registry_login_find(struct registry_login *login, const char *registry, struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);
    scoped(free) char *path = config_path();
    scoped(fd_close) int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (!path || (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)))
        return 0;
    if (fd < 0 || fd_read_all(fd, &text) < 0)
        return error_sys(err, "read %s", path);
    if (registry_login_parse(login, registry, text.data, text.length, err) < 0)
        return error_wrap(err, "%s", path);
    return 0;
}
