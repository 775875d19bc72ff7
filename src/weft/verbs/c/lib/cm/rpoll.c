/* rpoll and rselect: wait for rsockets and other files in one call. */
#include "rsockets.h"

#include <sys/select.h>
#include <time.h>

#define SPIN_MS 0.05
#define LOOK_MS 100 /* poll, because another thread may read the event that this one waits for */

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static short events_of(struct rsocket *rs)
{
    short events = 0;
    pthread_mutex_lock(&rs->mutex);
    if (rs->state == LISTENING) {
        struct pollfd one = {rs->fd, POLLIN, 0};
        events = poll(&one, 1, 0) == 1 ? POLLIN : 0;
    } else if (rs->state >= CONNECTING) {
        progress(rs);
        if (is_readable(rs)) events |= POLLIN | POLLRDNORM;
        if (is_writable(rs)) events |= POLLOUT | POLLWRNORM;
        if (rs->has_got_last) events |= POLLRDHUP;
        if (rs->state == CLOSED && !rs->arrived) events |= POLLHUP; /* not before the program has read everything */
        if (rs->error) events |= POLLERR;
    }
    pthread_mutex_unlock(&rs->mutex);
    return events;
}

/* Return the number of files that are ready. */
static int look(struct pollfd *files, nfds_t count)
{
    int found = 0;
    for (nfds_t n = 0; n < count; n++) {
        struct rsocket *rs = find_rsocket(files[n].fd);
        if (rs) files[n].revents = events_of(rs) & (files[n].events | POLLERR | POLLHUP);
        else if (poll(&files[n], 1, 0) < 0) return -1;
        found += files[n].revents != 0;
    }
    return found;
}

/* Replace each rsocket by the files of its completion and event channels, for poll. */
static nfds_t places_to_wait(const struct pollfd *files, nfds_t count, struct pollfd *places)
{
    nfds_t used = 0;
    for (nfds_t n = 0; n < count; n++) {
        struct rsocket *rs = find_rsocket(files[n].fd);
        places[used++] = (struct pollfd){files[n].fd, rs ? POLLIN : files[n].events, 0};
        if (!rs) continue;
        pthread_mutex_lock(&rs->mutex);
        if (rs->cq) {
            places[used++] = (struct pollfd){rs->channel->fd, POLLIN, 0};
            if (!rs->is_waited_for) arm(rs);
        }
        pthread_mutex_unlock(&rs->mutex);
    }
    return used;
}

static int sleep_in(struct pollfd *files, nfds_t count, double left_ms)
{
    struct pollfd *places = malloc((2 * count + 1) * sizeof(*places));
    if (!places) return in_errno(ENOMEM);
    nfds_t used = places_to_wait(files, count, places);
    int found = look(files, count);
    if (!found) {
        void *thread = weft_let_python_run();
        if (poll(places, used, left_ms < LOOK_MS ? (int)(left_ms + 0.999) : LOOK_MS) < 0) found = -1;
        weft_take_python_back(thread);
    }
    free(places);
    return found;
}

int rpoll(struct pollfd *files, nfds_t count, int timeout_ms)
{
    double begin = now_ms(), until = timeout_ms < 0 ? 1e300 : begin + timeout_ms;
    for (;;) {
        int found = look(files, count);
        double now = now_ms();
        if (!found && now >= until) return 0;
        if (!found && now - begin >= SPIN_MS) found = sleep_in(files, count, until - now);
        if (found) return found;
    }
}

int rselect(int count, fd_set *reads, fd_set *writes, fd_set *others, struct timeval *timeout)
{
    if (count < 0 || count > FD_SETSIZE) return in_errno(EINVAL);
    if (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)) return in_errno(EINVAL);
    struct pollfd *files = calloc(count + 1, sizeof(*files));
    if (!files) return in_errno(ENOMEM);
    int used = 0, found = 0;
    for (int fd = 0; fd < count; fd++) {
        short events = (reads && FD_ISSET(fd, reads) ? POLLIN : 0) | (writes && FD_ISSET(fd, writes) ? POLLOUT : 0) |
                       (others && FD_ISSET(fd, others) ? POLLPRI : 0);
        if (events) files[used++] = (struct pollfd){fd, events, 0};
    }
    int failed = rpoll(files, used, timeout ? timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000 : -1) < 0;
    for (int n = 0; n < used && !failed; n++) /* after an error the sets stay unchanged, as in select */
        if (files[n].revents & POLLNVAL) failed = in_errno(EBADF);
    for (int n = 0; n < used && !failed; n++) {
        short events = files[n].events, came = files[n].revents;
        int is[] = {events & POLLIN && came & (POLLIN | POLLHUP | POLLERR), events & POLLOUT && came & (POLLOUT | POLLERR),
                    events & POLLPRI && came & POLLPRI};
        fd_set *sets[] = {reads, writes, others};
        for (int kind = 0; kind < 3; kind++) {
            if (sets[kind] && !is[kind]) FD_CLR(files[n].fd, sets[kind]);
            found += is[kind];
        }
    }
    free(files);
    return failed ? -1 : found;
}
