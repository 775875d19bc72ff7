/* Asynchronous events: Python writes them into a pipe, whose other end is the context's async_fd. */
#include "weft.h"

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct weft_AsyncEvent told;
    if (wait_for_event(context->async_fd, &told, sizeof(told)) != sizeof(told)) return -1;
    event->event_type = told.type;
    event->element.cq = (void *)told.element; /* or a queue pair, or a shared receive queue */
    switch (told.type) {
    case IBV_EVENT_CQ_ERR:
        ((struct weft_cq *)event->element.cq)->async_events++;
        break;
    case IBV_EVENT_QP_FATAL: case IBV_EVENT_QP_REQ_ERR: case IBV_EVENT_QP_ACCESS_ERR: case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED: case IBV_EVENT_PATH_MIG: case IBV_EVENT_PATH_MIG_ERR: case IBV_EVENT_QP_LAST_WQE_REACHED:
        ((struct weft_qp *)event->element.qp)->events++;
        break;
    case IBV_EVENT_SRQ_ERR: case IBV_EVENT_SRQ_LIMIT_REACHED:
        ((struct weft_srq *)event->element.srq)->events++;
        break;
    default:
        event->element.port_num = told.element;
    }
    return 0;
}

#define ACK(object, counter) \
    do { \
        pthread_mutex_lock(&(object)->mutex); \
        (object)->counter++; \
        pthread_cond_signal(&(object)->cond); \
        pthread_mutex_unlock(&(object)->mutex); \
    } while (0)

void ibv_ack_async_event(struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        ACK(event->element.cq, async_events_completed);
        break;
    case IBV_EVENT_QP_FATAL: case IBV_EVENT_QP_REQ_ERR: case IBV_EVENT_QP_ACCESS_ERR: case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED: case IBV_EVENT_PATH_MIG: case IBV_EVENT_PATH_MIG_ERR: case IBV_EVENT_QP_LAST_WQE_REACHED:
        ACK(event->element.qp, events_completed);
        break;
    case IBV_EVENT_SRQ_ERR: case IBV_EVENT_SRQ_LIMIT_REACHED:
        ACK(event->element.srq, events_completed);
        break;
    default:
        break;
    }
}
