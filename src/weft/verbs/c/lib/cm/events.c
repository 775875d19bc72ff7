/* Events: a channel is a pipe with one byte per event; the event itself is read from Python. All bytes are equal, so the
   events of a destroyed identifier can be removed while other threads read. */
#include "cm.h"

struct rdma_event_channel *rdma_create_event_channel(void)
{
    struct channel *made = calloc(1, sizeof(*made));
    int error = made ? make_pipe(&made->channel.fd, &made->events) : ENOMEM;
    if (!error) {
        struct weft_CreateChannel call = {.reads = made->channel.fd, .writes = made->events};
        error = ASK(CreateChannel, &call);
        made->handle = call.handle;
        if (error) close(made->channel.fd), close(made->events);
    }
    if (error) {
        free(made);
        return no_object(error);
    }
    return &made->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    weft_close(((struct channel *)channel)->handle);
    close(channel->fd);
    close(((struct channel *)channel)->events);
    free(channel);
}

/* -- the fields of an event when the program gets it ----------------------------------------------------------- */

static void put_parameters(struct rdma_cm_event *event, const struct weft_TakeEvent *call, const struct weft_Address *to)
{
    uint8_t *data = ((struct event *)event)->private_data;
    if (call->is_datagram) {
        event->param.ud.private_data = call->length ? data : NULL, event->param.ud.private_data_len = call->length;
        event->param.ud.qp_num = call->qp_num, event->param.ud.qkey = call->qkey;
        address_from_words(to, &event->param.ud.ah_attr);
        return;
    }
    event->param.conn = (struct rdma_conn_param){
        .private_data = call->length ? data : NULL, .private_data_len = call->length,
        .responder_resources = call->responder_resources, .initiator_depth = call->initiator_depth,
        .retry_count = call->retry_count, .rnr_retry_count = call->rnr_retry_count, .srq = call->srq,
        .qp_num = call->qp_num};
}

uint16_t rdma_get_src_port(struct rdma_cm_id *);
int rdma_migrate_id(struct rdma_cm_id *, struct rdma_event_channel *);
int rdma_destroy_id(struct rdma_cm_id *);

/* A connection request gets its own identifier. */
static int introduce(struct id *listener, struct id *made, const struct weft_TakeEvent *call, const uint8_t source[16],
                     const uint8_t target[16])
{
    struct rdma_cm_id *id = &made->id;
    made->handle = call->handle;
    const struct sockaddr *own = &listener->id.route.addr.src_addr;
    set_address(&id->route.addr.src_storage, id, own->sa_family, source, rdma_get_src_port(&listener->id));
    set_address(&id->route.addr.dst_storage, id, own->sa_family, target, htons(call->port));
    id->route.addr.addr.ibaddr.pkey = 0xffff;
    id->pd = listener->id.pd;
    return use_device(id) || (listener->is_sync && rdma_migrate_id(id, NULL)) ? -1 : 0;
}

static void finish(struct event *made, struct id *id)
{
    struct rdma_cm_event *event = &made->event;
    struct group *group;
    switch (event->event) {
    case RDMA_CM_EVENT_CONNECT_RESPONSE: {
        if (!id->id.qp) break; /* the program has its own queue pair and reports when it is ready */
        struct weft_Establish ready = {.id = id->handle};
        int error = get_ready(&id->id);
        if (!error) error = ASK(Establish, &ready);
        event->event = error ? RDMA_CM_EVENT_CONNECT_ERROR : RDMA_CM_EVENT_ESTABLISHED;
        event->status = -error;
        break;
    }
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
        memcpy(&group, made->private_data, sizeof(group));
        enter_group(&id->id, event, group);
        break;
    default:
        break;
    }
}

/* 0; ENOENT if there is none, because another thread got it or its identifier is destroyed; or another error. */
static int take(struct channel *channel, struct event *made)
{
    uint8_t source[16], target[16];
    struct weft_Address to = {0};
    struct id *asks = make_id(&channel->channel, NULL, 0, 0);
    struct weft_TakeEvent call = {.channel = channel->handle, .object = (uintptr_t)asks, .source = (uintptr_t)source,
                                  .target = (uintptr_t)target, .private_data = (uintptr_t)made->private_data,
                                  .address = (uintptr_t)&to};
    if (asks) call.gids = (uintptr_t)&asks->id.route.addr.addr.ibaddr;
    int error = asks ? ASK(TakeEvent, &call) : ENOMEM;
    if (error || !call.handle) {
        if (asks) free_id(asks);
        if (error) return error;
    }
    struct id *id = (struct id *)call.id;
    struct rdma_cm_event *event = &made->event;
    event->id = &id->id, event->event = call.kind, event->status = (int)call.status, made->counted = id;
    put_parameters(event, &call, &to);
    if (!call.handle) {
        finish(made, id);
        return 0;
    }
    asks->id.context = id->id.context, asks->id.ps = id->id.ps, asks->id.qp_type = id->id.qp_type;
    event->id = &asks->id, event->listen_id = &id->id;
    if (introduce(id, asks, &call, source, target)) event->status = -errno;
    return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
    struct event *made = calloc(1, sizeof(*made));
    int error = made ? ENOENT : ENOMEM;
    while (error == ENOENT) {
        char one;
        struct weft_WaitForEvent wait = {.channel = ((struct channel *)channel)->handle};
        if (weft_holds_python()) ASK(WaitForEvent, &wait); /* the thread that writes the event could not run */
        ssize_t length = read(channel->fd, &one, 1);
        while (!length) pause(); /* another thread has destroyed the channel: wait forever, as in a kernel */
        error = length == 1 ? take((struct channel *)channel, made) : errno;
    }
    if (error) {
        free(made);
        return in_errno(error);
    }
    *event = &made->event;
    return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    if (!event) return in_errno(EINVAL);
    struct id *id = ((struct event *)event)->counted;
    pthread_mutex_lock(&id->mutex);
    id->acked++;
    pthread_cond_signal(&id->cond);
    pthread_mutex_unlock(&id->mutex);
    free(event);
    return 0;
}

int complete(struct id *id)
{
    if (!id->is_sync) return 0;
    if (id->id.event) {
        rdma_ack_cm_event(id->id.event);
        id->id.event = NULL;
    }
    if (rdma_get_cm_event(id->id.channel, &id->id.event)) return -1;
    struct rdma_cm_event *event = id->id.event;
    if (!event->status) return 0;
    return in_errno(event->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : abs(event->status));
}

const char *rdma_event_str(int event)
{
    static const char *const names[] = {
#define NAME(which) [which] = #which
        NAME(RDMA_CM_EVENT_ADDR_RESOLVED), NAME(RDMA_CM_EVENT_ADDR_ERROR), NAME(RDMA_CM_EVENT_ROUTE_RESOLVED),
        NAME(RDMA_CM_EVENT_ROUTE_ERROR), NAME(RDMA_CM_EVENT_CONNECT_REQUEST), NAME(RDMA_CM_EVENT_CONNECT_RESPONSE),
        NAME(RDMA_CM_EVENT_CONNECT_ERROR), NAME(RDMA_CM_EVENT_UNREACHABLE), NAME(RDMA_CM_EVENT_REJECTED),
        NAME(RDMA_CM_EVENT_ESTABLISHED), NAME(RDMA_CM_EVENT_DISCONNECTED), NAME(RDMA_CM_EVENT_DEVICE_REMOVAL),
        NAME(RDMA_CM_EVENT_MULTICAST_JOIN), NAME(RDMA_CM_EVENT_MULTICAST_ERROR), NAME(RDMA_CM_EVENT_ADDR_CHANGE),
        NAME(RDMA_CM_EVENT_TIMEWAIT_EXIT),
    };
    return event >= 0 && (size_t)event < sizeof(names) / sizeof(*names) ? names[event] : "UNKNOWN EVENT";
}
