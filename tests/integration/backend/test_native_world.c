/* SPDX-License-Identifier: Apache-2.0 */
/* What of the outside reaches into a native sandbox: templates, mounts and the network. */

#include "ground.h"

#include "backend/template.h"

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

static struct outcome outcome;
static char folder[64];

/* Plain shell for what the host has to provide; fails the test when it fails. */
static void on_host(const char *format, ...)
{
    char command[4096];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    if (system(command) != 0)
        fail_msg("`%s` failed", command);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/sandglass-world.XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0755), 0);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    on_host("rm -rf %s", folder);
    return 0;
}

static void open_with(struct ground *ground, const char *format, ...)
{
    char settings[2048];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(settings, sizeof(settings), format, arguments);
    va_end(arguments);
    ground_open(ground, "native", settings);
}

static void destroy(struct ground *ground, const char *id)
{
    assert_int_equal(ground_destroy(ground, id, NULL), 0);
}

/* --- templates ----------------------------------------------------------------------------- */

/* A template with a shell and a few programs. */
static void make_template(void)
{
    on_host("mkdir -p %s/t/usr/bin %s/t/etc %s/t/data && cd %s/t && ln -s usr/bin bin && "
            "ln -s usr/lib lib && ln -s usr/lib64 lib64 && cp /usr/bin/dash usr/bin/sh && "
            "cd usr/bin && cp /usr/bin/cat /usr/bin/id /usr/bin/ls . && cd ../.. && "
            "for l in $(ldd /usr/bin/ls /usr/bin/id | grep -o '/lib[^ :]*' | sort -u); do "
            "mkdir -p usr${l%%/*}; cp -L $l usr$l; done && "
            "echo 'root:x:0:0::/root:/bin/sh' > etc/passwd && echo marked > data/mark",
            folder, folder, folder, folder);
}

static void create_from(struct ground *ground, struct backend_sandbox *sandbox)
{
    struct sandbox_spec spec;
    struct error err = { 0 };
    char name[80];

    ground_spec(&spec);
    snprintf(name, sizeof(name), "%s/t", folder);
    spec.source.name = name;
    if (ground_create(ground, &spec, sandbox, &err) < 0)
        fail_msg("create: %s", err.message);
}

static void a_directory_is_a_template(void **state)
{
    struct ground ground;
    struct backend_sandbox sandbox;

    (void)state;
    make_template();
    open_with(&ground, "sandbox.template: %s/t\n", folder);
    create_from(&ground, &sandbox);
    ground_expect(&ground, sandbox.id, "", "cat /data/mark; id -un; pwd; cat /etc/hostname",
                  "marked\nuser\n/home/user\nsandbox\n");
    if (running_as_root())
        ground_expect(&ground, sandbox.id, "root", "echo changed > /data/mark; cat /data/mark",
                      "changed\n");
    on_host("grep -q marked %s/t/data/mark", folder);
    destroy(&ground, sandbox.id);
    ground_close(&ground);
}

static void a_hostile_template_reaches_nothing(void **state)
{
    struct ground ground;
    struct backend_sandbox sandbox;

    (void)state;
    make_template();
    on_host("cd %s/t && ln -s /tmp dev && ln -s /etc proc && ln -s / sys && "
            "ln -sf ../../../../../../etc/shadow etc/hosts && ln -s /etc/shadow etc/resolv.conf && "
            "ln -s / etc/hostname && ln -s /root home",
            folder);
    open_with(&ground, "sandbox.template: %s/t\n", folder);
    {
        struct sandbox_spec spec;
        struct error err = { 0 };
        char name[80];

        ground_spec(&spec);
        snprintf(name, sizeof(name), "%s/t", folder);
        spec.source.name = name;
        /* A home that leads elsewhere is no place for a user. */
        assert_int_equal(ground_create(&ground, &spec, &sandbox, &err), -1);
        assert_int_equal(ground_count(&ground), 0);
    }
    on_host("rm %s/t/home", folder);
    create_from(&ground, &sandbox);
    ground_expect(&ground, sandbox.id, "", "cat /etc/hosts /etc/resolv.conf; ls /dev /proc/self/ns",
                  "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"
                  "/dev:\nfd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\n"
                  "urandom\nzero\n\n/proc/self/ns:\ncgroup\nipc\nmnt\nnet\npid\npid_for_children\n"
                  "time\ntime_for_children\nuser\nuts\n");
    destroy(&ground, sandbox.id);
    ground_close(&ground);
}

static void import_box(struct ground *ground)
{
    struct template_info info;
    struct error err = { 0 };
    char path[96];
    int fd;

    make_template();
    on_host("tar -C %s/t -czf %s/box.tgz .", folder, folder);
    snprintf(path, sizeof(path), "%s/box.tgz", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (template_import(ground->path, "box", fd, NULL, &info, &err) < 0)
        fail_msg("import: %s", err.message);
    close(fd);
}

static void an_imported_template_is_used_by_name_and_kept_while_it_is(void **state)
{
    struct ground ground;
    struct backend_sandbox sandbox;
    struct sandbox_spec spec;
    struct error err = { 0 };

    (void)state;
    open_with(&ground, "%s", "");
    import_box(&ground);
    ground_spec(&spec);
    spec.source.name = "box";
    if (ground_create(&ground, &spec, &sandbox, &err) < 0)
        fail_msg("create: %s", err.message);
    ground_expect(&ground, sandbox.id, "", "cat /data/mark; ls /usr/bin",
                  "marked\ncat\nid\nls\nsh\n");
    assert_int_equal(template_remove(ground.path, "box", &err), -1);
    assert_string_equal(err.name, "template_in_use");
    destroy(&ground, sandbox.id);
    assert_int_equal(template_remove(ground.path, "box", &err), 0);
    ground_spec(&spec);
    spec.source.name = "box";
    assert_int_equal(ground_create(&ground, &spec, &sandbox, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    /* Imported anew under the same name, it is the new one. */
    on_host("rm -rf %s/t", folder);
    import_box(&ground);
    assert_int_equal(ground_create(&ground, &spec, &sandbox, &err), 0);
    ground_expect(&ground, sandbox.id, "", "cat /data/mark", "marked\n");
    destroy(&ground, sandbox.id);
    assert_int_equal(template_remove(ground.path, "box", &err), 0);
    ground_close(&ground);
}

static void only_the_configured_directory_is_one(void **state)
{
    struct ground ground;
    struct backend_sandbox sandbox;
    struct sandbox_spec spec;
    struct error err = { 0 };

    (void)state;
    open_with(&ground, "%s", "");
    ground_spec(&spec);
    spec.source.name = "/";
    assert_int_equal(ground_create(&ground, &spec, &sandbox, &err), -1);
    assert_string_equal(err.name, "template_unknown");
    ground_close(&ground);
}

/* --- mounts -------------------------------------------------------------------------------- */

static void mounts_of_the_settings_are_there(void **state)
{
    struct ground ground;
    struct backend_sandbox sandbox;

    (void)state;
    on_host("mkdir %s/in %s/out && echo given > %s/in/file && chmod 777 %s/out && "
            "echo single > %s/one",
            folder, folder, folder, folder, folder);
    open_with(&ground,
              "sandbox.mounts:\n"
              "  - {host_path: %s/in, path: /data/in, read_only: true}\n"
              "  - {host_path: %s/out, path: /data/out, read_only: false}\n"
              "  - {host_path: %s/one, path: /etc/one, read_only: true}\n",
              folder, folder, folder);
    sandbox = ground_sandbox(&ground);
    ground_expect(
        &ground, sandbox.id, "",
        "cat /data/in/file /etc/one; (echo x > /data/in/file) 2>/dev/null || echo locked; "
        "echo back > /data/out/file",
        "given\nsingle\nlocked\n");
    on_host("grep -q back %s/out/file", folder);
    destroy(&ground, sandbox.id);
    ground_close(&ground);
}

/* --- network ------------------------------------------------------------------------------- */

static void close_world(const char *name)
{
    (void)!system("ip link del sgworld0 2>/dev/null");
    on_host("ip netns del %s 2>/dev/null; true", name);
}

/* Another machine, as far as the host is concerned, with a server on it. */
static void open_world(const char *name)
{
    close_world(name);
    on_host("ip netns add %s && ip link add sgworld0 type veth peer name w0 netns %s && "
            "ip addr add 198.51.100.1/24 dev sgworld0 && ip link set sgworld0 up && "
            "ip -n %s addr add 198.51.100.2/24 dev w0 && ip -n %s link set w0 up && "
            "ip -n %s link set lo up",
            name, name, name, name, name);
}

static void an_open_network_leads_out_and_not_to_the_host(void **state)
{
    struct ground ground;
    struct backend_sandbox sandbox;
    struct backend_sandbox other;
    struct sandbox_spec spec;
    struct error err = { 0 };
    char text[2048];
    FILE *server;

    (void)state;
    open_world("sgworld");
    server = popen("exec ip netns exec sgworld python3 -c '\n"
                   "import socket\ns = socket.create_server((\"198.51.100.2\", 8080))\n"
                   "print(\"up\", flush=True)\n"
                   "c, a = s.accept()\nc.sendall(b\"hello \" + a[0].encode())\nc.close()'",
                   "re");
    assert_non_null(server);
    assert_non_null(fgets(text, sizeof(text), server));
    open_with(&ground, "%s", "");
    ground_spec(&spec);
    spec.network.mode = NETWORK_OPEN;
    if (ground_create(&ground, &spec, &sandbox, &err) < 0)
        fail_msg("create: %s", err.message);
    ground_spec(&spec);
    spec.network.mode = NETWORK_OPEN;
    assert_int_equal(ground_create(&ground, &spec, &other, &err), 0);
    snprintf(text, sizeof(text),
             "python3 -c '\nimport socket\n"
             "print(socket.create_connection((\"198.51.100.2\", 8080), 60).recv(100).decode())\n"
             "for host in (\"127.0.0.1\", \"198.51.100.1\", \"100.127.%u.%u\", \"100.127.%u.%u\", "
             "\"169.254.169.254\"):\n"
             "  s = socket.socket()\n  s.settimeout(0.3)\n"
             "  try:\n    s.connect((host, %d))\n    print(\"reached\", host)\n"
             "  except OSError as e: pass\nprint(\"end\")'",
             (ground_slot(&sandbox) * 4 + 1) >> 8 & 255, (ground_slot(&sandbox) * 4 + 1) & 255,
             (ground_slot(&other) * 4 + 2) >> 8 & 255, (ground_slot(&other) * 4 + 2) & 255, 22);
    ground_run(&ground, sandbox.id, "", text, &outcome);
    pclose(server);
    close_world("sgworld");
    assert_string_equal(outcome.output, "hello 198.51.100.1\nend\n");
    destroy(&ground, sandbox.id);
    destroy(&ground, other.id);
    ground_close(&ground);
    snprintf(text, sizeof(text), "nft list tables | grep -qw sandglass_test_%d", (int)getpid());
    assert_int_not_equal(system(text), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_directory_is_a_template),
        TEST(a_hostile_template_reaches_nothing),
        TEST(an_imported_template_is_used_by_name_and_kept_while_it_is),
        TEST(only_the_configured_directory_is_one),
        TEST(mounts_of_the_settings_are_there),
        /* more than one id, a control group, or the host's network */
        TEST(an_open_network_leads_out_and_not_to_the_host),
    };

    return run_ground_tests("native world", tests, 0, 1);
}
