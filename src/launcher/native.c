#include "launcher/native.h"

int host_open(struct launcher *launcher, struct fail *fail)
{
    (void)launcher;
    return fail_set(fail, "native", ENOSYS);
}
int host_add_template(struct launcher *launcher, const char *name, int dir, struct fail *fail)
{
    (void)launcher;
    (void)name;
    (void)dir;
    return fail_set(fail, "native", ENOSYS);
}
const struct template *host_template(struct launcher *launcher, const char *name, struct fail *fail)
{
    (void)launcher;
    (void)name;
    fail_set(fail, "native", ENOSYS);
    return NULL;
}
bool native_has_open_network(const struct launcher *launcher)
{
    (void)launcher;
    return false;
}
int native_start(struct spawn *spawn)
{
    return fail_set(&spawn->fail, "native", ENOSYS);
}
int native_resize_store(int store, const struct launch_limits *limits, struct fail *fail)
{
    (void)store;
    (void)limits;
    return fail_set(fail, "native", ENOSYS);
}
