/* The device files of adapters, for programs that look whether they may open them before they ask libibverbs: UCX does.

   weft's adapter has none, and only root could make some. So to all who ask for /dev/infiniband/uverbs0 and its
   like, /dev/null answers, which is a character device that everybody may read and write. Preloaded by itself, as
   what a program asks of libc reaches no library that it only links. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#define DEVICES "/dev/infiniband/uverbs"

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
