/* Connections: request, accept or reject, and disconnect. The state of the identifier's queue pair follows. */
#include "cm.h"

int rdma_get_cm_event(struct rdma_event_channel *, struct rdma_cm_event **);
int rdma_ack_cm_event(struct rdma_cm_event *);
int rdma_create_qp(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *);
int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);

/* -- queue pairs -------------------------------------------------------------------------------------------------- */

static int init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
    struct weft_Address address = {0};
    struct weft_ModifyQp words = {.address = (uintptr_t)&address};
    struct weft_InitQpAttr call = {.id = ((struct id *)id)->handle, .state = attr->qp_state, .words = (uintptr_t)&words};
    int error = ASK(InitQpAttr, &call);
    if (error) return error;
#define TAKE(field) attr->field = words.field;
    WEFT_QP_NUMBERS(TAKE)
    address_from_words(&address, &attr->ah_attr);
    *mask = words.mask;
    return 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
    return in_errno(init_qp_attr(id, attr, mask));
}

static int change(struct rdma_cm_id *id, int state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask = 0, error = init_qp_attr(id, &attr, &mask);
    return error ? error : ibv_modify_qp(id->qp, &attr, mask);
}

int get_ready(struct rdma_cm_id *id)
{
    int error = change(id, IBV_QPS_RTR);
    return error ? error : change(id, IBV_QPS_RTS);
}

static int fail(struct rdma_cm_id *id)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    return id->qp ? ibv_modify_qp(id->qp, &attr, IBV_QP_STATE) : 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
int ibv_destroy_comp_channel(struct ibv_comp_channel *);
struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
int ibv_destroy_cq(struct ibv_cq *);
int ibv_destroy_qp(struct ibv_qp *);
struct ibv_srq *ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
int ibv_destroy_srq(struct ibv_srq *);

static void drop_queues(struct rdma_cm_id *id)
{
    if (id->send_cq) ibv_destroy_cq(id->send_cq);
    if (id->send_cq_channel) ibv_destroy_comp_channel(id->send_cq_channel);
    if (id->recv_cq && id->recv_cq != id->send_cq) ibv_destroy_cq(id->recv_cq);
    if (id->recv_cq_channel && id->recv_cq_channel != id->send_cq_channel) ibv_destroy_comp_channel(id->recv_cq_channel);
    id->send_cq = id->recv_cq = NULL, id->send_cq_channel = id->recv_cq_channel = NULL;
}

static struct ibv_cq *own_queue(struct rdma_cm_id *id, uint32_t places, struct ibv_comp_channel **channel)
{
    *channel = ibv_create_comp_channel(id->verbs);
    return *channel ? ibv_create_cq(id->verbs, places ? places : 1, id, *channel, 0) : NULL;
}

#define INLINE_BYTES 64 /* adapters provide them unrequested, and programs rely on it */

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
    if (id->qp) return in_errno(EINVAL);
    if (!id->verbs && use_device(id)) return -1;
    if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) attr->comp_mask |= IBV_QP_INIT_ATTR_PD, attr->pd = id->pd;
    else if (!attr->pd) attr->pd = id->pd;
    if (attr->pd->context != id->verbs) return in_errno(EINVAL);
    id->pd = attr->pd;
    if (!attr->send_cq) attr->send_cq = id->send_cq = own_queue(id, attr->cap.max_send_wr, &id->send_cq_channel);
    if (!attr->recv_cq && attr->send_cq)
        attr->recv_cq = id->recv_cq = own_queue(id, attr->cap.max_recv_wr, &id->recv_cq_channel);
    if (!attr->srq) attr->srq = id->srq;
    if (attr->cap.max_inline_data < INLINE_BYTES) attr->cap.max_inline_data = INLINE_BYTES;
    id->qp = attr->send_cq && attr->recv_cq ? weft_create_qp_ex(id->verbs, attr) : NULL;
    if (!id->qp) {
        int error = errno;
        drop_queues(id);
        return in_errno(error);
    }
    id->qp_type = attr->qp_type;
    int error = change(id, IBV_QPS_INIT);
    if (!error && attr->qp_type == IBV_QPT_UD) error = get_ready(id);
    if (error) {
        ibv_destroy_qp(id->qp);
        id->qp = NULL;
        drop_queues(id);
    }
    return in_errno(error);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr_ex ex = {0};
    memcpy(&ex, attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask)); /* the common first part */
    ex.comp_mask = IBV_QP_INIT_ATTR_PD, ex.pd = pd ? pd : id->pd;
    int error = rdma_create_qp_ex(id, &ex);
    if (!error) memcpy(attr, &ex, sizeof(*attr));
    return error;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
    if (id->qp) ibv_destroy_qp(id->qp);
    id->qp = NULL;
    drop_queues(id);
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    if (!id->verbs && use_device(id)) return -1;
    id->srq = ibv_create_srq(pd ? pd : id->pd, attr);
    if (id->srq && pd) id->pd = pd;
    return id->srq ? 0 : -1;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
    if (!id->verbs && use_device(id)) return -1;
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD, attr->pd = id->pd;
    id->srq = weft_create_srq_ex(id->verbs, attr);
    return id->srq ? 0 : -1;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
    if (id->srq) ibv_destroy_srq(id->srq);
    id->srq = NULL;
}

/* -- requests and replies ------------------------------------------------------------------------------------------------------ */

static int offer(struct rdma_cm_id *id, const struct rdma_conn_param *param, int is_answer)
{
    struct weft_Offer call = {.id = ((struct id *)id)->handle, .is_answer = is_answer, .is_given = param != NULL};
    if (param) {
        call.private_data = (uintptr_t)param->private_data;
        call.length = param->private_data ? param->private_data_len : 0;
        call.responder_resources = param->responder_resources, call.initiator_depth = param->initiator_depth;
        call.flow_control = param->flow_control, call.retry_count = param->retry_count;
        call.rnr_retry_count = param->rnr_retry_count, call.srq = param->srq, call.qp_num = param->qp_num;
    }
    if (id->qp) call.qp_num = id->qp->qp_num, call.srq = id->qp->srq != NULL;
    return ASK(Offer, &call);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    struct weft_Connect call = {.id = ((struct id *)id)->handle};
    int error = offer(id, param, 0);
    if (!error) error = ASK(Connect, &call);
    return error ? in_errno(error) : complete((struct id *)id);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
    struct weft_Listen call = {.id = ((struct id *)id)->handle, .backlog = backlog > 0 ? backlog : 0};
    int error = ASK(Listen, &call);
    if (error) return in_errno(error);
    if (!id->route.addr.src_addr.sa_family) id->route.addr.src_addr.sa_family = AF_INET;
    *port_of(&id->route.addr.src_addr) = htons(call.port);
    ((struct id *)id)->is_listening = 1;
    return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    struct weft_Accept call = {.id = ((struct id *)id)->handle};
    int is_datagram = id->ps == RDMA_PS_UDP || id->ps == RDMA_PS_IPOIB;
    int error = offer(id, param, 1);
    if (!error && id->qp && !is_datagram) error = get_ready(id);
    if (!error) error = ASK(Accept, &call);
    if (error) return in_errno(error);
    return is_datagram ? 0 : complete((struct id *)id);
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t length)
{
    struct weft_Reject call = {.id = ((struct id *)id)->handle, .private_data = (uintptr_t)private_data,
                               .length = private_data ? length : 0};
    return in_errno(ASK(Reject, &call));
}
int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t length)
{
    return rdma_reject(id, private_data, length);
}

int rdma_establish(struct rdma_cm_id *id)
{
    struct weft_Establish call = {.id = ((struct id *)id)->handle};
    return in_errno(id->qp ? EINVAL : ASK(Establish, &call));
}

int rdma_notify(struct rdma_cm_id *id, int event)
{
    struct weft_Notify call = {.id = ((struct id *)id)->handle, .event = event};
    return in_errno(ASK(Notify, &call));
}

int rdma_disconnect(struct rdma_cm_id *id)
{
    struct weft_Disconnect call = {.id = ((struct id *)id)->handle};
    int error = fail(id);
    if (!error) error = ASK(Disconnect, &call);
    return error ? in_errno(error) : complete((struct id *)id);
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    (void)id;
    return in_errno(ece && !ece->vendor_id ? 0 : weft_lacks("rdma_set_local_ece"));
}
int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    (void)id;
    if (!ece) return in_errno(EINVAL);
    memset(ece, 0, sizeof(*ece)); /* no vendor options */
    return 0;
}

/* -- endpoints: all steps in one call ----------------------------------------------------------------------------- */

int rdma_create_id(struct rdma_event_channel *, struct rdma_cm_id **, void *, int);
int rdma_destroy_id(struct rdma_cm_id *);
int rdma_bind_addr(struct rdma_cm_id *, struct sockaddr *);
int rdma_resolve_addr(struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int);
int rdma_resolve_route(struct rdma_cm_id *, int);

#define TIMEOUT_MS 2000

static int begin_endpoint(struct rdma_cm_id *id, struct rdma_addrinfo *to, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    if (to->ai_flags & RAI_PASSIVE) {
        struct id *passive = (struct id *)id;
        if (rdma_bind_addr(id, to->ai_src_addr)) return -1;
        if (pd) id->pd = pd;
        if (!init) return 0;
        passive->init = malloc(sizeof(*init));
        if (!passive->init) return in_errno(ENOMEM);
        *passive->init = *init;
        passive->init->qp_type = to->ai_qp_type;
        return 0;
    }
    if (rdma_resolve_addr(id, to->ai_src_addr, to->ai_dst_addr, TIMEOUT_MS)) return -1;
    if (rdma_resolve_route(id, TIMEOUT_MS)) return -1;
    if (!init) return 0;
    init->qp_type = to->ai_qp_type;
    return rdma_create_qp(id, pd, init);
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *to, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct rdma_cm_id *made;
    if (rdma_create_id(NULL, &made, NULL, to->ai_port_space)) return -1;
    made->qp_type = to->ai_qp_type;
    if (begin_endpoint(made, to, pd, init)) {
        int error = errno;
        rdma_destroy_id(made);
        return in_errno(error);
    }
    *id = made;
    return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
    if (id->qp) rdma_destroy_qp(id);
    if (id->srq) rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **id)
{
    struct id *own = (struct id *)listener;
    struct rdma_cm_event *event;
    if (!own->is_sync) return in_errno(EPERM);
    if (!own->is_listening) return in_errno(EINVAL);
    if (listener->event) {
        rdma_ack_cm_event(listener->event);
        listener->event = NULL;
    }
    if (rdma_get_cm_event(listener->channel, &event)) return -1;
    int error = event->status ? abs(event->status) : event->event != RDMA_CM_EVENT_CONNECT_REQUEST ? EINVAL : 0;
    if (!error && own->init) {
        struct ibv_qp_init_attr attr = *own->init;
        if (rdma_create_qp(event->id, listener->pd, &attr)) {
            error = errno;
            rdma_reject(event->id, NULL, 0);
            rdma_destroy_id(event->id);
        }
    }
    if (error) {
        listener->event = event;
        return in_errno(error);
    }
    *id = event->id;
    (*id)->event = event;
    return 0;
}
