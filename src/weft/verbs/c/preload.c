/* The files of adapters, for programs that look at them besides asking libibverbs.

   UCX and Mooncake look whether they may open /dev/infiniband/uverbs0. weft's adapter has none, and only root could make
   some: so /dev/null answers, which is a character device that everybody may read and write. Mooncake takes only
   adapters whose place in /sys it finds. Where there is none (weft exec --sysfs has one) it is that of Linux's
   own adapters in software. Preloaded by itself, as what a program asks of libc reaches no library that it only links.

   NCCL and UCX register memory of GPUs only if the kernel module of GPUDirect is loaded. weft's adapter registers it without
   the module, so the module's file exists for them: any file stands for it, since they only ask for its existence. NCCL's
   own memory can be registered unless it is CUDA's virtual memory (NCCL_CUMEM_ENABLE=1), which has no handle for other
   processes. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES "/dev/infiniband/uverbs"
#define ADAPTERS "/sys/class/infiniband/"
#define PARENT "/../.."
#define PARENT_IN_SOFTWARE "/sys/devices/virtual"
#define PEER_MEMORY "/sys/module/nvidia_peermem/version"
#define SPINS 1000

struct stat;

static int has_handles(void)
{
    const char *virtual_memory = getenv("NCCL_CUMEM_ENABLE");
    return !virtual_memory || strcmp(virtual_memory, "1") != 0;
}

static const char *standing_for(const char *path)
{
    if (!path) return path;
    if (strncmp(path, DEVICES, strlen(DEVICES)) == 0) return "/dev/null";
    return strcmp(path, PEER_MEMORY) == 0 && has_handles() ? "/dev/null" : path;
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

/* MPI in programs that are Python. mpi4py keeps Python's lock while MPI begins and ends, and waits there for threads of UCX
   that have a lock of UCX's and register memory with weft's adapter, which is in the same Python: so it is let go. All
   other calls that wait mpi4py makes without it. It ends MPI when there is no Python any more, and no adapter: so Python
   does before it goes. */

static void *mpi(const char *name)
{
    static const char *libraries[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"}; /* of Open MPI, of MPICH */
    void *found = dlsym(RTLD_NEXT, name);
    for (size_t n = 0; !found && n < sizeof(libraries) / sizeof(*libraries); n++) {
        void *library = dlopen(libraries[n], RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
    }
    return found;
}

static void *let_python_run(void)
{
    int (*has_lock)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    void *(*save)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
    int (*is_there)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    return has_lock && save && is_there && is_there() && has_lock() ? save() : NULL;
}

static int take_python_back(void *thread, int result)
{
    void (*restore)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
    if (thread) restore(thread);
    return result;
}

/* Locks of UCX's. NIXL's destructors wait for one with Python's lock, and a thread of UCX has it and needs Python's to send. */
int pthread_spin_lock(pthread_spinlock_t *lock)
{
    for (int tries = 0; tries < SPINS; tries++)
        if (!pthread_spin_trylock(lock)) return 0;
    void *thread = let_python_run();
    while (pthread_spin_trylock(lock)) sched_yield();
    return take_python_back(thread, 0);
}

int MPI_Finalize(void)
{
    int (*next)(void) = (int (*)(void))mpi("PMPI_Finalize");
    void *thread = let_python_run();
    return take_python_back(thread, next());
}

static int end_mpi(void)
{
    int (*is_over)(int *) = (int (*)(int *))mpi("PMPI_Finalized"), over = 0;
    return is_over(&over) || over ? 0 : MPI_Finalize();
}

static int begun(void *thread, int result)
{
    char text[160];
    int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    take_python_back(thread, result);
    if (thread && !result && run) {
        snprintf(text, sizeof(text), "import atexit, ctypes; atexit.register(ctypes.CFUNCTYPE(ctypes.c_int)(%lu))",
                 (unsigned long)end_mpi);
        run(text);
    }
    return result;
}

int MPI_Init(int *count, char ***words)
{
    int (*next)(int *, char ***) = (int (*)(int *, char ***))mpi("PMPI_Init");
    void *thread = let_python_run();
    return begun(thread, next(count, words));
}

int MPI_Init_thread(int *count, char ***words, int wanted, int *given)
{
    int (*next)(int *, char ***, int, int *) = (int (*)(int *, char ***, int, int *))mpi("PMPI_Init_thread");
    void *thread = let_python_run();
    return begun(thread, next(count, words, wanted, given));
}
