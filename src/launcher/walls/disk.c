/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/disk.h"

#include "launcher/program.h"
#include "launcher/sys.h"
#include "launcher/walls/host.h"
#include "launcher/walls/mounts.h"
#include "wire/launch.h"

#include <errno.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#define MKFS "/usr/sbin/mkfs.ext4"

enum {
    LOOP_MAJOR = 7,
    LOOP_ATTEMPTS = 16,
    LOOP_AUTOCLEAR = 4,
    LOOP_DIRECT_IO = 16,
    EXT4_MAGIC = 0xef53,
    GOING_DOWN_WITHOUT_WRITING = 2,
    BLOCK_SIZE = 4096,
};

#define LOOP_GET_FREE 0x4c82UL
#define LOOP_CONFIGURE 0x4c0aUL
#define EXT4_SHUTDOWN 0x8004587dUL

/* The kernel's layout; unnamed fields stay zero. */
struct loop_config {
    uint32_t fd;
    uint32_t block_size;
    struct {
        uint64_t device, inode, rdevice, offset, size_limit;
        uint32_t number, encrypt_type, encrypt_key_size, flags;
        uint8_t names[64 + 64 + 32];
        uint64_t init[2];
    } info;
    uint64_t reserved[8];
};

void disks_open(struct disks *disks, bool root, int mounts)
{
    *disks = (struct disks){ .control = -1, .mounts = mounts };
    if (root && access(MKFS, X_OK) == 0)
        disks->control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
}

bool disk_is_wanted(const struct disks *disks, const struct launch_limits *limits)
{
    return disks->control >= 0 && limits->image;
}

/* Without a journal, because no sandbox survives a crash of the host. */
static int make_file_system(const struct disks *disks, int image, uint64_t inodes)
{
    char count[24];
    const char *const argv[] = { MKFS,
                                 "-qF",
                                 "-b",
                                 "4096",
                                 "-m",
                                 "0",
                                 "-O",
                                 "^has_journal,^resize_inode",
                                 "-E",
                                 "lazy_itable_init=1,nodiscard,root_owner=0:0",
                                 "-N",
                                 count,
                                 "/proc/self/fd/3",
                                 NULL };

    snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes);
    return program_wait(program_spawn(disks->mounts, argv, image, 3));
}

static int configure(int device, int image)
{
    struct loop_config config = { .fd = (uint32_t)image,
                                  .block_size = BLOCK_SIZE,
                                  .info.flags = LOOP_AUTOCLEAR | LOOP_DIRECT_IO };

    return ioctl(device, LOOP_CONFIGURE, &config);
}

/* Another program may take the same loop device between LOOP_GET_FREE and its use: retry. Opens the
 * device, whose node has this path until the caller removes it. */
static int attach_loop(const struct disks *disks, int image, char path[32])
{
    for (int i = 0; i < LOOP_ATTEMPTS; i++) {
        int number = ioctl(disks->control, LOOP_GET_FREE);
        int device;

        if (number < 0)
            return -1;
        snprintf(path, 32, HOST_BLOCKS "/%d", number);
        (void)unlink(path);
        if (mknod(path, S_IFBLK | 0600, makedev(LOOP_MAJOR, (unsigned)number)) < 0)
            return -1;
        device = open(path, O_RDWR | O_CLOEXEC);
        if (device >= 0 && configure(device, image) == 0)
            return device;
        if (device >= 0)
            close(device);
        (void)unlink(path);
        if (errno != EBUSY)
            return -1;
    }
    return -1;
}

static int mount_image(const struct disks *disks, int image, struct fail *fail)
{
    char path[32];
    const struct mount_option options[] = { { "source", path }, { 0 } };
    int device = attach_loop(disks, image, path);
    int mount;

    if (device < 0)
        return fail_sys(fail, "attach a loop device");
    mount = mount_make("ext4", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV);
    if (mount < 0)
        fail_sys(fail, "mount the disk");
    (void)unlink(path);
    close(device);
    return mount;
}

int disk_make(const struct disks *disks, int dir, uint64_t bytes, uint64_t inodes,
              struct fail *fail)
{
    struct statfs space;
    int image;
    int mount = -1;

    /* The time to make a file system grows with its size. */
    if (fstatfs(dir, &space) < 0 || bytes / (uint64_t)space.f_bsize > space.f_blocks)
        return fail_set(fail, "disk: larger than the disk of the host", EINVAL);
    image = openat(dir, "disk", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (image < 0)
        return fail_sys(fail, "make the image of a disk");
    if (ftruncate(image, (off_t)bytes) < 0 || make_file_system(disks, image, inodes) < 0)
        fail_sys(fail, "make a file system");
    else
        mount = mount_image(disks, image, fail);
    (void)unlinkat(dir, "disk", 0);
    close(image);
    return mount;
}

bool disk_is_one(int store)
{
    struct statfs space;

    return fstatfs(store, &space) == 0 && space.f_type == EXT4_MAGIC;
}

void disk_abandon(int store)
{
    uint32_t how = GOING_DOWN_WITHOUT_WRITING;

    if (disk_is_one(store))
        (void)ioctl(store, EXT4_SHUTDOWN, &how);
}
