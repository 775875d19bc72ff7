/* Multicast groups of an identifier: its queue pair receives their packets. */
#include "cm.h"

int ibv_attach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t lid);
int ibv_detach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t lid);

static int join(struct rdma_cm_id *given, const struct sockaddr *address, int flags, void *context)
{
    uint8_t gid[16];
    struct id *id = (struct id *)given;
    int error = gid_of(address, gid);
    struct group *made = error ? NULL : calloc(1, sizeof(*made));
    if (!made) return in_errno(error ? error : ENOMEM);
    struct weft_JoinGroup call = {.id = id->handle, .gid = (uintptr_t)gid, .object = (uintptr_t)made, .flags = flags};
    memcpy(&made->address, address, length_of(address));
    made->context = context;
    pthread_mutex_lock(&id->mutex);
    made->next = id->groups, id->groups = made;
    pthread_mutex_unlock(&id->mutex);
    error = ASK(JoinGroup, &call);
    if (error) {
        pthread_mutex_lock(&id->mutex);
        struct group **where = &id->groups;
        while (*where != made) where = &(*where)->next;
        *where = made->next;
        pthread_mutex_unlock(&id->mutex);
        free(made);
        return in_errno(error);
    }
    return complete(id);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *address, void *context)
{
    return join(id, address, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
    const uint32_t known = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    if (attr->comp_mask & ~known || !(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) || !attr->addr)
        return in_errno(EINVAL);
    int has_flags = attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    return join(id, attr->addr, has_flags ? attr->join_flags : RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

void enter_group(struct rdma_cm_id *id, struct rdma_cm_event *event, struct group *group)
{
    event->param.ud.private_data = group->context, event->param.ud.private_data_len = 0;
    if (event->event != RDMA_CM_EVENT_MULTICAST_JOIN) return;
    group->gid = event->param.ud.ah_attr.grh.dgid;
    int error = id->qp ? ibv_attach_mcast(id->qp, &group->gid, event->param.ud.ah_attr.dlid) : 0;
    if (error) event->event = RDMA_CM_EVENT_MULTICAST_ERROR, event->status = -error;
    group->is_attached = id->qp && !error;
}

int rdma_leave_multicast(struct rdma_cm_id *given, struct sockaddr *address)
{
    struct id *id = (struct id *)given;
    struct group **where = &id->groups, *found;
    uint8_t gid[16];
    struct weft_LeaveGroup call = {.id = id->handle, .gid = (uintptr_t)gid};
    int error = gid_of(address, gid);
    if (error) return in_errno(error);
    pthread_mutex_lock(&id->mutex);
    while (*where && memcmp(&(*where)->address, address, length_of(address))) where = &(*where)->next;
    if ((found = *where)) *where = found->next;
    pthread_mutex_unlock(&id->mutex);
    if (!found) return in_errno(EADDRNOTAVAIL);
    if (given->qp && found->is_attached) ibv_detach_mcast(given->qp, &found->gid, 0);
    error = ASK(LeaveGroup, &call);
    free(found);
    return in_errno(error);
}

void forget_groups(struct id *id)
{
    while (id->groups) {
        struct group *next = id->groups->next;
        free(id->groups);
        id->groups = next;
    }
}
