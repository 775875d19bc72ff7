/* Send requests that need Python, from a thread without Python's lock, in a program that is Python itself.

   The thread that holds the lock may be waiting for the thread that sends: NIXL joins its progress thread with the lock
   held. So a thread of this library executes the request. The sender waits for the result for at most WAIT_S; after that
   the request is executed when the lock is free, and an error is printed. */
#include <pthread.h>

#include "weft.h"

#define WAIT_S 1

struct request {
    struct weft_PostSend call;
    struct request *next;
    int error;
    bool is_done, is_abandoned; /* the sender has stopped waiting */
    char data[];                /* the request's record, then its inline bytes */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_posted = PTHREAD_COND_INITIALIZER, is_executed = PTHREAD_COND_INITIALIZER;
static struct request *first, **last = &first;
static bool is_running;

void weft_forget_handed_over(void) /* in a child process: the thread is not copied */
{
    pthread_mutex_init(&mutex, NULL), pthread_cond_init(&is_posted, NULL), pthread_cond_init(&is_executed, NULL);
    first = NULL, last = &first, is_running = false;
}

static void *execute(void *unused)
{
    pthread_mutex_lock(&mutex);
    for (;; pthread_mutex_lock(&mutex)) {
        while (!first) pthread_cond_wait(&is_posted, &mutex);
        struct request *request = first;
        if (!(first = request->next)) last = &first;
        pthread_mutex_unlock(&mutex);
        int error = ASK(PostSend, &request->call);
        pthread_mutex_lock(&mutex);
        request->error = error, request->is_done = true;
        if (request->is_abandoned) {
            if (error) weft_say("a send request that was posted without Python's lock failed: %s", strerror(error));
            free(request);
        }
        pthread_cond_broadcast(&is_executed);
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

/* Copy a request with its inline bytes, which the caller may overwrite when the verb returns. */
static struct request *copy(const struct weft_PostSend *call, size_t inline_max)
{
    const struct weft_SendRequest *record = (void *)call->request;
    size_t bytes = sizeof(*record) + record->num_sge * sizeof(struct weft_SgeRecord), inline_bytes = 0;
    const struct weft_SgeRecord *elements = (void *)(record + 1);
    bool is_inline = record->flags & IBV_SEND_INLINE;
    for (unsigned n = 0; is_inline && n < record->num_sge; n++) inline_bytes += elements[n].length;
    if (inline_bytes > inline_max) return no_object(EINVAL);
    struct request *request = calloc(1, sizeof(*request) + bytes + inline_bytes);
    if (!request) return no_object(ENOMEM);
    request->call = *call, request->call.request = (uintptr_t)memcpy(request->data, record, bytes);
    struct weft_SgeRecord *copies = (void *)((struct weft_SendRequest *)request->data + 1);
    char *end = request->data + bytes;
    for (unsigned n = 0; is_inline && n < record->num_sge; end += copies[n++].length)
        copies[n].address = (uintptr_t)memcpy(end, (void *)elements[n].address, elements[n].length);
    return request;
}

int weft_hand_over(struct weft_PostSend *call, size_t inline_max)
{
    struct request *request = copy(call, inline_max);
    struct timespec end;
    pthread_t thread;
    int error = 0;
    if (!request) return errno;
    clock_gettime(CLOCK_REALTIME, &end), end.tv_sec += WAIT_S;
    pthread_mutex_lock(&mutex);
    if (!is_running && !(error = pthread_create(&thread, NULL, execute, NULL))) {
        pthread_detach(thread);
        is_running = true;
    }
    if (!error) {
        *last = request, last = &request->next;
        pthread_cond_signal(&is_posted);
        while (!request->is_done && !error) error = pthread_cond_timedwait(&is_executed, &mutex, &end);
        request->is_abandoned = !request->is_done;
        error = request->error;
        call->path = request->call.path, call->is_queued = request->is_abandoned || request->call.is_queued;
    }
    if (!request->is_abandoned) free(request);
    pthread_mutex_unlock(&mutex);
    return error;
}
