/* Receive requests of a queue pair or a shared receive queue: added to the ring here. */
#include "weft.h"

static char *entry(const struct weft_ReceiveQueueRecord *queue, uint64_t count)
{
    size_t size = sizeof(struct weft_ReceiveRequest) + queue->max_sge * sizeof(struct weft_SgeRecord);
    return (char *)queue + WEFT_RING + count % queue->capacity * size;
}

/* Add a request; the caller holds the lock. Return 0, or an error number. */
static int put(struct weft_ReceiveQueueRecord *queue, const struct ibv_recv_wr *wr)
{
    uint64_t head = queue->head;
    if (wr->num_sge < 0 || (uint64_t)wr->num_sge > queue->max_sge) return EINVAL;
    if (head - LOAD(queue->tail) + queue->returned >= queue->capacity) return ENOMEM;
    struct weft_ReceiveRequest *request = (void *)entry(queue, head);
    struct weft_SgeRecord *elements = (void *)(request + 1);
    request->wr_id = wr->wr_id, request->num_sge = wr->num_sge;
    for (int n = 0; n < wr->num_sge; n++) {
        elements[n].address = wr->sg_list[n].addr;
        elements[n].length = wr->sg_list[n].length;
        elements[n].lkey = wr->sg_list[n].lkey;
    }
    STORE(queue->head, head + 1);
    return 0;
}

static int put_all(struct weft_receives *receives, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int error = 0;
    lock(&receives->lock);
    for (; wr && !error; wr = error ? wr : wr->next) error = put(receives->queue, wr);
    unlock(&receives->lock);
    if (error) *bad = wr;
    return error;
}

int weft_post_recv(struct ibv_qp *given, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct weft_qp *qp = (struct weft_qp *)given;
    if (given->srq || !qp->receives.queue || qp->generation != weft_generation || qp->record->state == IBV_QPS_RESET) {
        *bad = wr;
        return EINVAL;
    }
    int error = put_all(&qp->receives, wr, bad);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (qp->record->state == IBV_QPS_ERR) { /* flush them */
        struct weft_FlushReceives call = {.qp = given->handle};
        ASK(FlushReceives, &call);
    }
    return error;
}

int weft_post_srq_recv(struct ibv_srq *given, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return put_all(&((struct weft_srq *)given)->receives, wr, bad);
}

/* -- shared queues ------------------------------------------------------------------------------------------------ */

struct ibv_srq *weft_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
    struct weft_srq *srq = calloc(1, sizeof(*srq));
    struct weft_CreateSrq call = {.context = handle_of(context), .max_wr = attr->attr.max_wr,
                                  .max_sge = attr->attr.max_sge, .srq_limit = attr->attr.srq_limit,
                                  .comp_mask = attr->comp_mask, .object = (uintptr_t)srq};
    if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) call.srq_type = attr->srq_type;
    if (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) call.pd = attr->pd->handle;
    if (attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) call.xrcd = ((struct weft_xrcd *)attr->xrcd)->handle;
    if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) call.cq = attr->cq->handle;
    int error = srq ? ASK(CreateSrq, &call) : ENOMEM;
    if (error) {
        free(srq);
        return no_object(error);
    }
    srq->srq.context = context, srq->srq.srq_context = attr->srq_context, srq->srq.handle = call.handle;
    srq->srq.pd = attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL;
    srq->receives.queue = (void *)call.queue, srq->number = call.number;
    pthread_mutex_init(&srq->srq.mutex, NULL);
    pthread_cond_init(&srq->srq.cond, NULL);
    attr->attr.max_wr = call.max_wr, attr->attr.max_sge = call.max_sge;
    return &srq->srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct ibv_srq_init_attr_ex ex = {.srq_context = attr->srq_context, .attr = attr->attr,
                                      .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd};
    struct ibv_srq *made = weft_create_srq_ex(pd->context, &ex);
    if (made) attr->attr = ex.attr;
    return made;
}

int ibv_modify_srq(struct ibv_srq *given, struct ibv_srq_attr *attr, int mask)
{
    struct weft_srq *srq = (struct weft_srq *)given;
    struct weft_ModifySrq call = {.srq = given->handle, .mask = mask, .max_wr = attr->max_wr,
                                  .srq_limit = attr->srq_limit};
    lock(&srq->receives.lock);
    int error = ASK(ModifySrq, &call);
    if (!error) srq->receives.queue = (void *)call.queue;
    unlock(&srq->receives.lock);
    return error;
}

int ibv_query_srq(struct ibv_srq *given, struct ibv_srq_attr *attr)
{
    const struct weft_ReceiveQueueRecord *queue = ((struct weft_srq *)given)->receives.queue;
    *attr = (struct ibv_srq_attr){queue->capacity, queue->max_sge, queue->limit};
    return 0;
}

int ibv_destroy_srq(struct ibv_srq *given)
{
    struct weft_srq *srq = (struct weft_srq *)given;
    int error = weft_close(given->handle);
    if (error) return error;
    drop_from_pipe(given->context->async_fd, context_of(given->context)->events, sizeof(struct weft_AsyncEvent), given);
    void *thread = weft_let_python_run();
    pthread_mutex_lock(&given->mutex);
    while (given->events_completed != srq->events) pthread_cond_wait(&given->cond, &given->mutex);
    pthread_mutex_unlock(&given->mutex);
    weft_take_python_back(thread);
    free(srq);
    return 0;
}

int weft_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
    *number = ((struct weft_srq *)srq)->number;
    return *number ? 0 : EOPNOTSUPP;
}

struct ibv_xrcd *weft_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
    struct weft_OpenXrcd call = {.context = handle_of(context), .comp_mask = attr->comp_mask, .file = attr->fd,
                                 .oflags = attr->oflags};
    struct weft_xrcd *xrcd = calloc(1, sizeof(*xrcd));
    int error = xrcd ? ASK(OpenXrcd, &call) : ENOMEM;
    if (error) {
        free(xrcd);
        return no_object(error);
    }
    xrcd->xrcd.context = context, xrcd->handle = call.handle;
    return &xrcd->xrcd;
}

int weft_close_xrcd(struct ibv_xrcd *xrcd)
{
    int error = weft_close(((struct weft_xrcd *)xrcd)->handle);
    if (!error) free(xrcd);
    return error;
}
