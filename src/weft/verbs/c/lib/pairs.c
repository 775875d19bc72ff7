/* Queue pairs: creating and modifying them. Sending is in sending.c. */
#include "weft.h"

struct ibv_qp *weft_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    struct weft_qp *made = calloc(1, sizeof(*made));
    bool is_datagram = attr->qp_type == IBV_QPT_UD;
    struct ibv_pd *pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
    struct weft_CreateQp call = {.context = handle_of(context), .pd = pd ? pd->handle : 0, .qp_type = attr->qp_type,
                                 .sq_sig_all = attr->sq_sig_all != 0, .object = (uintptr_t)made,
                                 .send_cq = attr->send_cq ? attr->send_cq->handle : 0,
                                 .recv_cq = attr->recv_cq ? attr->recv_cq->handle : 0,
                                 .srq = attr->srq ? attr->srq->handle : 0};
    if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) call.xrcd = ((struct weft_xrcd *)attr->xrcd)->handle;
    if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) call.create_flags = attr->create_flags;
#define GIVE_CAP(field) call.field = attr->cap.field;
#define TAKE_CAP(field) attr->cap.field = call.field;
    WEFT_CAP_NUMBERS(GIVE_CAP)
    if (made && is_datagram) made->datagrams = calloc(WEFT_DATAGRAM_PATHS, sizeof(*made->datagrams));
    int error = made && (made->datagrams || !is_datagram) ? ASK(CreateQp, &call) : ENOMEM;
    if (error) {
        if (made) free(made->datagrams);
        free(made);
        return no_object(error);
    }
    WEFT_CAP_NUMBERS(TAKE_CAP)
    struct ibv_qp *qp = &made->ex.qp_base;
    qp->context = context, qp->qp_context = attr->qp_context, qp->pd = pd, qp->srq = attr->srq;
    qp->send_cq = attr->send_cq, qp->recv_cq = attr->recv_cq;
    qp->handle = call.handle, qp->qp_num = call.number, qp->qp_type = attr->qp_type;
    pthread_mutex_init(&qp->mutex, NULL);
    pthread_cond_init(&qp->cond, NULL);
    made->record = (void *)call.record, made->receives.queue = (void *)call.receives;
    made->generation = weft_generation, made->inline_max = call.max_inline_data;
    if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
        made->is_extended = 1;
        extend_qp(made);
    }
    return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr_ex ex = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
    memcpy(&ex, attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask)); /* the common first part */
    struct ibv_qp *made = weft_create_qp_ex(pd->context, &ex);
    if (made) attr->cap = ex.cap;
    return made;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    return ((struct weft_qp *)qp)->is_extended ? &((struct weft_qp *)qp)->ex : NULL;
}

/* Python removes the completions of a queue pair that is reset: no thread may poll meanwhile. */
static void lock_queues(struct ibv_qp *qp)
{
    struct weft_cq *first = (struct weft_cq *)qp->send_cq, *second = (struct weft_cq *)qp->recv_cq;
    if (first > second) first = (struct weft_cq *)qp->recv_cq, second = (struct weft_cq *)qp->send_cq;
    if (first) lock(&first->lock);
    if (second && second != first) lock(&second->lock);
}
static void unlock_queues(struct ibv_qp *qp)
{
    if (qp->send_cq) unlock(&((struct weft_cq *)qp->send_cq)->lock);
    if (qp->recv_cq && qp->recv_cq != qp->send_cq) unlock(&((struct weft_cq *)qp->recv_cq)->lock);
}

static int change(struct ibv_qp *given, struct weft_ModifyQp *call)
{
    struct weft_qp *qp = (struct weft_qp *)given;
    int resets = call->mask & IBV_QP_STATE && call->qp_state == IBV_QPS_RESET;
    lock(&qp->lock);
    if (resets) lock_queues(given);
    int error = ASK(ModifyQp, call);
    if (resets) {
        unlock_queues(given);
        qp->is_queued = 0;
    }
    qp->path = (void *)call->path;
    if (qp->datagrams) memset(qp->datagrams, 0, WEFT_DATAGRAM_PATHS * sizeof(*qp->datagrams));
    unlock(&qp->lock);
    return error;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct weft_Address address = address_words(&attr->ah_attr), other = address_words(&attr->alt_ah_attr);
    struct weft_ModifyQp call = {.qp = qp->handle, .mask = mask, .address = (uintptr_t)&address,
                                 .alternative = (uintptr_t)&other};
#define GIVE_QP(field) call.field = attr->field;
    WEFT_QP_NUMBERS(GIVE_QP)
    int error = change(qp, &call);
    if (!error && mask & IBV_QP_STATE) qp->state = attr->qp_state;
    return error;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    struct weft_Address address = {0}, other = {0};
    struct weft_ModifyQp words = {.address = (uintptr_t)&address, .alternative = (uintptr_t)&other};
    struct weft_QueryQp call = {.qp = qp->handle, .mask = mask, .words = (uintptr_t)&words};
    int error = ASK(QueryQp, &call);
    if (error) return error;
    memset(attr, 0, sizeof(*attr));
#define TAKE_QP(field) attr->field = words.field;
    WEFT_QP_NUMBERS(TAKE_QP)
    WEFT_CAP_NUMBERS(TAKE_CAP)
    address_from_words(&address, &attr->ah_attr);
    address_from_words(&other, &attr->alt_ah_attr);
    if (init)
        *init = (struct ibv_qp_init_attr){qp->qp_context, qp->send_cq, qp->recv_cq, qp->srq, attr->cap, qp->qp_type,
                                          call.sq_sig_all};
    qp->state = attr->qp_state;
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *given)
{
    struct weft_qp *qp = (struct weft_qp *)given;
    lock_queues(given);
    int error = weft_close(given->handle);
    unlock_queues(given);
    if (error) return error;
    drop_from_pipe(given->context->async_fd, context_of(given->context)->events, sizeof(struct weft_AsyncEvent), given);
    void *thread = weft_let_python_run();
    pthread_mutex_lock(&given->mutex);
    while (given->events_completed != qp->events) pthread_cond_wait(&given->cond, &given->mutex);
    pthread_mutex_unlock(&given->mutex);
    weft_take_python_back(thread);
    end_batch(qp);
    free(qp->datagrams);
    free(qp);
    return 0;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece) { (void)qp; return ece->vendor_id ? EOPNOTSUPP : 0; }
int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece) { (void)qp, (void)ece; return EOPNOTSUPP; }
int ibv_query_qp_data_in_order(struct ibv_qp *qp, int op, uint32_t flags) { (void)qp, (void)op, (void)flags; return 0; }

static int group(int is_joined, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    struct weft_ChangeGroup call = {.qp = qp->handle, .gid = (uintptr_t)gid->raw, .lid = lid, .is_joined = is_joined};
    return ASK(ChangeGroup, &call);
}
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) { return group(1, qp, gid, lid); }
int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) { return group(0, qp, gid, lid); }
