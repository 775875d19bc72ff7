/* The files of adapters, for programs that look at them besides asking libibverbs.

   UCX and Mooncake look whether they may open /dev/infiniband/uverbs0. weft's adapter has none, and only root could make
   some: so /dev/null answers, which is a character device that everybody may read and write. Mooncake takes only
   adapters whose place in /sys it finds. Where there is none (weft exec --sysfs has one) it is that of Linux's
   own adapters in software. Preloaded by itself, as what a program asks of libc reaches no library that it only links. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#define DEVICES "/dev/infiniband/uverbs"
#define ADAPTERS "/sys/class/infiniband/"
#define PARENT "/../.."
#define PARENT_IN_SOFTWARE "/sys/devices/virtual"

struct stat;

static const char *standing_for(const char *path)
{
    return path && strncmp(path, DEVICES, strlen(DEVICES)) == 0 ? "/dev/null" : path;
}

#define STAT(name) \
    int name(const char *path, struct stat *about) \
    { \
        int (*next)(const char *, struct stat *) = (int (*)(const char *, struct stat *))dlsym(RTLD_NEXT, #name); \
        return next(standing_for(path), about); \
    }
#define OLD_STAT(name) /* of programs from before glibc 2.33 */ \
    int name(int version, const char *path, struct stat *about) \
    { \
        int (*next)(int, const char *, struct stat *) = \
            (int (*)(int, const char *, struct stat *))dlsym(RTLD_NEXT, #name); \
        return next(version, standing_for(path), about); \
    }
STAT(stat)
STAT(stat64)
OLD_STAT(__xstat)
OLD_STAT(__xstat64)

int access(const char *path, int how)
{
    int (*next)(const char *, int) = (int (*)(const char *, int))dlsym(RTLD_NEXT, "access");
    return next(standing_for(path), how);
}

static int is_parent_of_adapter(const char *path)
{
    size_t length = path ? strlen(path) : 0;
    return length > strlen(ADAPTERS PARENT) && strncmp(path, ADAPTERS, strlen(ADAPTERS)) == 0
           && strcmp(path + length - strlen(PARENT), PARENT) == 0;
}

char *realpath(const char *path, char *resolved)
{
    char *(*next)(const char *, char *) = (char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
    char *found = next(path, resolved);
    return found || !is_parent_of_adapter(path) ? found : next(PARENT_IN_SOFTWARE, resolved);
}

char *__realpath_chk(const char *path, char *resolved, size_t size) /* of programs built with -D_FORTIFY_SOURCE */
{
    char *(*next)(const char *, char *, size_t) =
        (char *(*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "__realpath_chk");
    char *found = next(path, resolved, size);
    return found || !is_parent_of_adapter(path) ? found : next(PARENT_IN_SOFTWARE, resolved, size);
}
