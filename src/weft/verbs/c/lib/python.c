/* Calls into Python, which is found or started once per process and never ended.

   A Python program's own interpreter is used if its version is weft's; otherwise the libpython of weft's Python is
   loaded. Python gets the address of `entry` and writes the function to call there. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <wchar.h>

#include "weft.h"
#include "weft_python.h"

typedef int call_function(int64_t operation, void *words);
static struct weft_EntryPoint entry = {.kernels = (uintptr_t)&weft_kernels, .operations = (uintptr_t)WEFT_OPERATIONS};
unsigned weft_generation;

#define MEMORIES 64
static struct weft_Header *memories[MEMORIES];
static pid_t owner;
bool weft_is_guest;

static int (*is_initialized)(void), (*run)(const char *), (*gil_ensure)(void), (*gil_check)(void);
static const char *(*version)(void);
static void (*gil_release)(int), *(*save_thread)(void), (*before_fork)(void), (*after_fork_child)(void);
static void (*after_fork_parent)(void), (*restore_thread)(void *);

void weft_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("weft: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

int weft_lacks(const char *verb)
{
    weft_say("%s: weft's adapter does not have this verb", verb);
    return EOPNOTSUPP;
}
void *weft_lacks_object(const char *verb) { return no_object(weft_lacks(verb)); }

static bool find(void *library)
{
    struct { const char *name; void **where; } wanted[] = {
        {"Py_IsInitialized", (void **)&is_initialized}, {"PyRun_SimpleString", (void **)&run},
        {"PyGILState_Ensure", (void **)&gil_ensure}, {"PyGILState_Release", (void **)&gil_release},
        {"PyGILState_Check", (void **)&gil_check}, {"PyEval_SaveThread", (void **)&save_thread},
        {"PyEval_RestoreThread", (void **)&restore_thread}, {"Py_GetVersion", (void **)&version},
        {"PyOS_BeforeFork", (void **)&before_fork}, {"PyOS_AfterFork_Child", (void **)&after_fork_child},
        {"PyOS_AfterFork_Parent", (void **)&after_fork_parent},
    };
    for (size_t n = 0; n < sizeof(wanted) / sizeof(*wanted); n++)
        if (!(*wanted[n].where = dlsym(library, wanted[n].name))) return false;
    return true;
}

bool weft_can_load(void)
{
    if (find(RTLD_DEFAULT) && is_initialized()) {
        if (strncmp(version(), WEFT_PYTHON_VERSION, strlen(WEFT_PYTHON_VERSION)) == 0) return weft_is_guest = true;
        weft_say("this program is Python %.6s and weft runs with %s, which do not fit into one process: "
                 "install weft for the Python of the program", version(), WEFT_PYTHON_VERSION);
        return false;
    }
    if (!*WEFT_LIBPYTHON) {
        weft_say("%s was built without a shared libpython, which programs of others need to reach weft's adapter: "
                 "install the system's libpython of the same version, build it so (pyenv: "
                 "PYTHON_CONFIGURE_OPTS=--enable-shared), or install weft with a Python that has one (python3 of a "
                 "distribution, uv, conda)", WEFT_EXECUTABLE);
        return false;
    }
    return true;
}

static bool load(void)
{
    if (!weft_can_load()) return false;
    if (weft_is_guest) return true;
    void *library = dlopen(WEFT_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL);
    if (!library || !find(library)) {
        weft_say("%s cannot be loaded into this program: %s", WEFT_LIBPYTHON, library ? "it lacks a call" : dlerror());
        return false;
    }
    wchar_t *(*decode)(const char *, size_t *) = (wchar_t * (*)(const char *, size_t *)) dlsym(library, "Py_DecodeLocale");
    void (*set_name)(const wchar_t *) = (void (*)(const wchar_t *))dlsym(library, "Py_SetProgramName");
    void (*initialize)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
    int *no_site = (int *)dlsym(library, "Py_NoSiteFlag");
    if (no_site) *no_site = 1; /* WEFT_START adds the needed folders without searching all installed packages */
    wchar_t *name = decode ? decode(WEFT_EXECUTABLE, NULL) : NULL;
    if (set_name && name) set_name(name);
    initialize(0);
    save_thread();
    return true;
}

/* fork: notify Python before it, and after it in both processes. Where Python itself forks, it does so. */

static _Thread_local int forking, forking_state;

static void prepare_fork(void)
{
    forking = !gil_check();
    if (forking) {
        forking_state = gil_ensure();
        before_fork();
    }
}
static void parent_forked(void)
{
    if (forking) {
        after_fork_parent();
        gil_release(forking_state);
    }
    forking = 0;
}
static void child_forked(void)
{
    weft_generation++;
    memset(memories, 0, sizeof(memories));
    weft_forget_handed_over();
    if (forking) {
        after_fork_child();
        gil_release(forking_state);
    }
    forking = 0;
}

bool weft_holds_python(void) { return weft_is_guest && is_initialized() && gil_check(); }

void *weft_let_python_run(void) { return weft_holds_python() ? save_thread() : NULL; }
void weft_take_python_back(void *thread)
{
    int error = errno;
    if (thread) restore_thread(thread);
    errno = error;
}
void weft_give_way(void)
{
    void *thread = weft_let_python_run();
    sched_yield();
    weft_take_python_back(thread);
}

static bool start(void)
{
    char text[sizeof(WEFT_START) + 32];
    if (!load()) return false;
    snprintf(text, sizeof(text), WEFT_START, (unsigned long)&entry);
    int state = gil_ensure();
    int failed = run(text);
    gil_release(state);
    if (failed || !entry.call) {
        weft_say("weft cannot be started in this program");
        return false;
    }
    owner = getpid();
    pthread_atfork(prepare_fork, parent_forked, child_forked);
    return true;
}

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static int started; /* 1: running, -1: failed */
static _Thread_local bool is_known; /* Python has a state for this thread */

int weft_call(int operation, void *words)
{
    if (__builtin_expect(started != 1, 0)) {
        pthread_mutex_lock(&starting);
        if (!started) started = start() ? 1 : -1;
        pthread_mutex_unlock(&starting);
        if (started < 0) return ENOSYS;
    }
    if (weft_is_guest && !is_initialized()) return operation == WEFT_Close ? 0 : ENODEV; /* the program's Python has ended */
    if (!is_known) { /* keep Python's state of the thread, instead of creating it at each call */
        is_known = true;
        if (!gil_check()) {
            gil_ensure();
            save_thread();
        }
    }
    int error = ((call_function *)entry.call)(operation, words);
    if (error) errno = error; /* verbs that return an error number also set errno, and programs print it */
    return error;
}

int weft_close(uint32_t handle)
{
    struct weft_Close call = {.handle = handle};
    return ASK(Close, &call);
}

void weft_remember_memory(struct weft_Header *memory)
{
    for (int n = 0; n < MEMORIES; n++)
        if (memories[n] == memory || !memories[n]) {
            memories[n] = memory;
            return;
        }
}

__attribute__((destructor)) static void at_end(void)
{
    for (int n = 0; n < MEMORIES && owner == getpid(); n++)
        if (memories[n]) STORE(memories[n]->process, 0);
}
