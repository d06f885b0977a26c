/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/template.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int run(const char *format, ...)
{
    char command[4096];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    return system(command);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/sandglass-template.XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(
        run("mkdir %s/state %s/outside && echo safe > %s/outside/file", folder, folder, folder), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return run("rm -rf %s", folder);
}

/* Writes an archive with Python's tarfile, which also makes what no honest tool does. */
static void make_archive(const char *name, const char *body)
{
    char path[128];
    FILE *script;

    snprintf(path, sizeof(path), "%s/make.py", folder);
    script = fopen(path, "we");
    assert_non_null(script);
    fprintf(script,
            "import io, os, sys, tarfile, json, gzip, hashlib\n"
            "os.chdir(%s%s%s)\n"
            "def add(t, name, data=None, **k):\n"
            "    i = tarfile.TarInfo(name)\n"
            "    if data is not None: i.size = len(data)\n"
            "    i.mode = 0o644\n"
            "    for key, value in k.items(): setattr(i, key, value)\n"
            "    t.addfile(i, io.BytesIO(data) if data is not None else None)\n"
            "def layer(*entries):\n"
            "    b = io.BytesIO()\n"
            "    with tarfile.open(fileobj=b, mode='w') as t:\n"
            "        for e in entries: add(t, *e[:2], **(e[2] if len(e) > 2 else {}))\n"
            "    return b.getvalue()\n"
            "D, L, H = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE\n"
            "%s\n",
            "'", folder, "'", body);
    fclose(script);
    (void)name;
    assert_int_equal(run("python3 %s/make.py", folder), 0);
}

static int import(const char *archive, const char *name, struct error *err)
{
    struct template_info info;
    char state[96];
    char path[96];
    scoped(fd_close) int fd = -1;

    snprintf(state, sizeof(state), "%s/state", folder);
    snprintf(path, sizeof(path), "%s/%s", folder, archive);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return template_import(state, name, fd, NULL, &info, err);
}

#define ROOT "/state/templates/t/files/root"

static void an_archive_of_files_becomes_a_template(void **state)
{
    struct error err = { 0 };
    struct template_info *infos;
    size_t count;
    char path[96];

    (void)state;
    make_archive("a.tar", "with tarfile.open('a.tar', 'w', format=tarfile.GNU_FORMAT) as t:\n"
                          "    add(t, './usr', type=D, mode=0o755)\n"
                          "    add(t, './usr/file', b'content', mode=0o4755)\n"
                          "    add(t, 'deep/er/file', b'x' * 70000)\n"
                          "    add(t, 'link', type=L, linkname='/usr/file')\n"
                          "    add(t, 'hard', type=H, linkname='usr/file')\n"
                          "    add(t, 'long/' + 'n' * 200, b'long')\n"
                          "    add(t, 'dev/null', type=tarfile.CHRTYPE, devmajor=1, devminor=3)\n"
                          "    add(t, 'p', type=tarfile.FIFOTYPE)\n");
    if (import("a.tar", "t", &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(
        run("cd %s" ROOT " && grep -q content hard && test $(readlink link) = /usr/file "
            "&& test $(stat -c %%a usr/file) = 755 && test $(stat -c %%s deep/er/file) "
            "= 70000 && test ! -e dev/null && test -p p && grep -q long long/nnn*",
            folder),
        0);
    snprintf(path, sizeof(path), "%s/state", folder);
    assert_int_equal(template_list(path, &infos, &count, &err), 0);
    assert_int_equal(count, 1);
    assert_string_equal(infos[0].name, "t");
    assert_true(infos[0].bytes > 70000 && infos[0].imported_us > 0);
    free(infos);
    assert_int_equal(import("a.tar", "t", &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(template_remove(path, "t", &err), 0);
    assert_int_equal(run("test -z \"$(ls -A %s/state/templates)\"", folder), 0);
}

static void an_archive_does_not_reach_outside(void **state)
{
    static const char *const bodies[] = {
        "add(t, '../outside/file', b'bad')",
        "add(t, 'a/../../outside/file', b'bad')",
        "add(t, 'x', type=H, linkname='../outside/file')",
        "add(t, 'x', type=H, linkname='/etc/passwd')",
        "add(t, 'n' * 5000, b'bad')",
    };
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        char body[512];

        snprintf(body, sizeof(body), "with tarfile.open('a.tar', 'w') as t:\n    %s\n", bodies[i]);
        make_archive("a.tar", body);
        assert_int_equal(import("a.tar", "t", &err), -1);
        assert_int_equal(
            run("grep -q safe %s/outside/file && test -z \"$(ls -A %s/state/templates)\"", folder,
                folder),
            0);
    }
}

/* As deep as a path can be, and twice that through a link. */
static void a_tree_of_any_depth_is_made_and_removed(void **state)
{
    struct error err = { 0 };
    char path[96];

    (void)state;
    snprintf(path, sizeof(path), "%s/state", folder);
    make_archive("a.tar", "with tarfile.open('a.tar', 'w') as t:\n"
                          "    add(t, 'a/' * 2046 + 'f', b'deep')\n"
                          "    add(t, 'd', type=L, linkname='a/' * 2000)\n"
                          "    add(t, 'd/' + 'a/' * 2000 + 'f', b'deeper')\n");
    if (import("a.tar", "t", &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(run("test $(find %s" ROOT " -type f | wc -l) = 2", folder), 0);
    if (template_remove(path, "t", &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(run("test -z \"$(ls -A %s/state/templates)\"", folder), 0);
}

static void links_of_an_archive_stay_inside(void **state)
{
    struct error err = { 0 };
    char body[1024];

    (void)state;
    snprintf(body, sizeof(body),
             "with tarfile.open('a.tar', 'w') as t:\n"
             "    add(t, 'out', type=L, linkname='%s/outside')\n"
             "    add(t, 'up', type=L, linkname='../../../../../../../..%s/outside')\n"
             "    add(t, '/file', b'kept')\n"
             "    add(t, 'real', type=D, mode=0o755)\n"
             "    add(t, 'to', type=L, linkname='/real')\n"
             "    add(t, 'to/file', b'through')\n"
             "    add(t, 'f', type=L, linkname='%s/outside/file')\n"
             "    add(t, 'f', b'replaced')\n",
             folder, folder, folder);
    make_archive("a.tar", body);
    if (import("a.tar", "t", &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(run("cd %s" ROOT " && grep -q through real/file && grep -q replaced f && "
                         "grep -q kept file && grep -q safe %s/outside/file",
                         folder, folder),
                     0);
    snprintf(body, sizeof(body),
             "with tarfile.open('b.tar', 'w') as t:\n"
             "    add(t, 'out', type=L, linkname='%s/outside')\n"
             "    add(t, 'out/file', b'bad')\n",
             folder);
    make_archive("b.tar", body);
    (void)import("b.tar", "u", &err);
    assert_int_equal(run("grep -q safe %s/outside/file", folder), 0);
}

static void an_image_is_its_layers_in_order(void **state)
{
    struct error err = { 0 };

    (void)state;
    make_archive("i.tar", "one = layer(('etc', None, {'type': D, 'mode': 0o755}), ('etc/a', "
                          "b'old'), ('etc/gone', b'x'), ('opt/x/y', b'1'))\n"
                          "two = gzip.compress(layer(('etc/a', b'new'), ('etc/.wh.gone', b''), "
                          "('opt/x/.wh..wh..opq', b''), ('opt/x/z', b'2')))\n"
                          "with tarfile.open('i.tar', 'w') as t:\n"
                          "    add(t, 'one/layer.tar', one)\n"
                          "    add(t, 'two/layer.tar', two)\n"
                          "    add(t, 'manifest.json', json.dumps([{'Layers': ['one/layer.tar', "
                          "'two/layer.tar']}]).encode())\n");
    if (import("i.tar", "t", &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(run("cd %s" ROOT " && grep -q new etc/a && test ! -e etc/gone && test ! -e "
                         "opt/x/y && test -e opt/x/z && test ! -e manifest.json && test ! -e "
                         "../image",
                         folder),
                     0);
}

static void an_oci_image_is_found_by_its_digests(void **state)
{
    struct error err = { 0 };

    (void)state;
    make_archive(
        "o.tar",
        "def d(b): return hashlib.sha256(b).hexdigest()\n"
        "l = layer(('etc/a', b'oci'))\n"
        "m = json.dumps({'layers': [{'mediaType': 'application/vnd.oci.image.layer.v1.tar', "
        "'digest': 'sha256:' + d(l)}]}).encode()\n"
        "x = json.dumps({'manifests': [{'digest': 'sha256:' + d(m)}]}).encode()\n"
        "with tarfile.open('o.tar', 'w:gz') as t:\n"
        "    add(t, 'oci-layout', b'{}')\n"
        "    add(t, 'index.json', x)\n"
        "    add(t, 'blobs/sha256/' + d(m), m)\n"
        "    add(t, 'blobs/sha256/' + d(l), l)\n");
    if (import("o.tar", "t", &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(run("grep -q oci %s" ROOT "/etc/a", folder), 0);
}

static void damaged_archives_leave_nothing(void **state)
{
    static const char *const bodies[] = {
        "open('a.tar', 'wb').write(b'nonsense' * 1000)",
        "open('a.tar', 'wb').write(b'')",
        "open('a.tar', 'wb').write(layer(('a', b'x' * 100000))[:50000])",
        "open('a.tar', 'wb').write(gzip.compress(layer(('a', os.urandom(100000))))[:5000])",
        "b = bytearray(layer(('a', b'x'))); b[124:136] = b'\\xff' * 12; open('a.tar', "
        "'wb').write(b)",
        "open('a.tar', 'wb').write(layer(('manifest.json', b'[{\"Layers\": "
        "[\"../../../etc\"]}]')))",
        "open('a.tar', 'wb').write(layer(('manifest.json', b'{')))",
    };
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        make_archive("a.tar", bodies[i]);
        assert_int_equal(import("a.tar", "t", &err), -1);
        assert_int_equal(run("test -z \"$(ls -A %s/state/templates)\"", folder), 0);
    }
}

static void a_template_in_use_stays(void **state)
{
    struct error err = { 0 };
    char path[96];

    (void)state;
    make_archive("a.tar", "open('a.tar', 'wb').write(layer(('a', b'x')))");
    assert_int_equal(import("a.tar", "t", &err), 0);
    snprintf(path, sizeof(path), "%s/state", folder);
    assert_int_equal(
        run("mkdir -p %s/state/sandboxes/sbx_a && touch %s/state/templates/t/users/sbx_a "
            "%s/state/templates/t/users/sbx_dead",
            folder, folder, folder),
        0);
    assert_int_equal(template_remove(path, "t", &err), -1);
    assert_string_equal(err.name, "template_in_use");
    assert_int_equal(run("rmdir %s/state/sandboxes/sbx_a", folder), 0);
    assert_int_equal(template_remove(path, "t", &err), 0);
    assert_int_equal(template_remove(path, "t", &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static int replace(const char *archive, const char *name, struct error *err)
{
    static const struct template_options options = { .replace = true };
    struct template_info info;
    char state[96];
    char path[96];
    scoped(fd_close) int fd = -1;

    snprintf(state, sizeof(state), "%s/state", folder);
    snprintf(path, sizeof(path), "%s/%s", folder, archive);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return template_import(state, name, fd, &options, &info, err);
}

static void a_template_is_replaced_while_nobody_uses_it(void **state)
{
    struct error err = { 0 };

    (void)state;
    make_archive("a.tar", "open('a.tar', 'wb').write(layer(('old', b'x')))\n"
                          "open('b.tar', 'wb').write(layer(('new', b'x')))\n"
                          "open('bad.tar', 'wb').write(b'nonsense' * 1000)");
    assert_int_equal(replace("a.tar", "t", &err), 0);
    assert_int_equal(
        run("mkdir -p %s/state/sandboxes/sbx_a && touch %s/state/templates/t/users/sbx_a", folder,
            folder),
        0);
    assert_int_equal(replace("b.tar", "t", &err), -1);
    assert_string_equal(err.name, "template_in_use");
    assert_int_equal(run("rmdir %s/state/sandboxes/sbx_a", folder), 0);
    assert_int_equal(replace("bad.tar", "t", &err), -1);
    assert_int_equal(run("test -e %s" ROOT "/old", folder), 0);
    assert_int_equal(replace("b.tar", "t", &err), 0);
    assert_int_equal(run("test -e %s" ROOT "/new && test ! -e %s" ROOT "/old && "
                         "test \"$(ls -A %s/state/templates)\" = t",
                         folder, folder, folder),
                     0);
}

/* Each is what a command leaves that is killed at some point, and what the next one makes of it. */
static void what_killed_commands_leave_is_settled_by_the_next(void **state)
{
    static const struct {
        const char *left, *expected;
    } cases[] = {
        /* while it unpacks */
        { "mkdir -p .u.1/files/root", "next t" },
        /* between the two renames of a replacement */
        { "mkdir -p .t.1/files/root && mv t .t.1.old", "next t" },
        /* before the old one is removed */
        { "cp -r t .t.1.old", "next t" },
        /* while it removes one that turns out to be used */
        { "mv t .t.1 && touch .t.1/users/sbx_a", "next t" },
        /* the same, and there is another one by now */
        { "cp -r t .t.1 && touch .t.1/users/sbx_a", ".t.1 next t" },
        /* while it removes one */
        { "mv t .t.1", "next" },
        /* not a name of a template */
        { "mkdir .old .x..old", "next t" },
    };
    struct error err = { 0 };

    make_archive("a.tar", "open('a.tar', 'wb').write(layer(('a', b'x')))");
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        assert_int_equal(
            run("rm -rf %s/state/templates && mkdir -p %s/state/sandboxes/sbx_a", folder, folder),
            0);
        assert_int_equal(import("a.tar", "t", &err), 0);
        assert_int_equal(run("cd %s/state/templates && %s", folder, cases[i].left), 0);
        assert_int_equal(import("a.tar", "next", &err), 0);
        if (run("cd %s/state/templates && test \"$(ls -A | LC_ALL=C sort | xargs)\" = \"%s\"",
                folder, cases[i].expected) != 0)
            fail_msg("after %s", cases[i].left);
    }
    (void)state;
}

static void names_of_templates_are_plain(void **state)
{
    static const char *const bad[] = { "", ".", "..", "a/b", "host", "configured", ".x", "a b" };
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_int_equal(template_check_name(bad[i], &err), -1);
    assert_int_equal(template_check_name("python-3.12_slim", &err), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_archive_of_files_becomes_a_template),
        TEST(an_archive_does_not_reach_outside),
        TEST(a_tree_of_any_depth_is_made_and_removed),
        TEST(links_of_an_archive_stay_inside),
        TEST(an_image_is_its_layers_in_order),
        TEST(an_oci_image_is_found_by_its_digests),
        TEST(damaged_archives_leave_nothing),
        TEST(a_template_in_use_stays),
        TEST(a_template_is_replaced_while_nobody_uses_it),
        TEST(what_killed_commands_leave_is_settled_by_the_next),
        TEST(names_of_templates_are_plain),
    };

    return cmocka_run_group_tests_name("backend/template", tests, NULL, NULL);
}
