/* Verbs that weft's adapter lacks: a call prints a message and returns an error. */
#include "weft.h"

#define LACKS(verb) static int lacks_##verb(void) { return weft_lacks("ibv_" #verb); }
#define LACKS_OBJECT(verb) static void *lacks_##verb(void) { return weft_lacks_object("ibv_" #verb); }
LACKS_OBJECT(alloc_null_mr)
LACKS_OBJECT(create_counters)
LACKS_OBJECT(create_flow)
LACKS_OBJECT(create_flow_action_esp)
LACKS_OBJECT(create_rwq_ind_table)
LACKS_OBJECT(create_wq)
LACKS_OBJECT(open_qp)
LACKS(modify_cq)
LACKS(modify_qp_rate_limit)
LACKS(post_srq_ops)

void fill_in_lacking(struct verbs_context *verbs)
{
    verbs->alloc_null_mr = (struct ibv_mr * (*)(struct ibv_pd *)) lacks_alloc_null_mr;
    verbs->create_counters = lacks_create_counters, verbs->ibv_create_flow = lacks_create_flow;
    verbs->create_flow_action_esp = lacks_create_flow_action_esp;
    verbs->create_rwq_ind_table = lacks_create_rwq_ind_table, verbs->create_wq = lacks_create_wq;
    verbs->open_qp = (struct ibv_qp * (*)(struct ibv_context *, struct ibv_qp_open_attr *)) lacks_open_qp;
    verbs->modify_cq = lacks_modify_cq, verbs->post_srq_ops = lacks_post_srq_ops;
    verbs->modify_qp_rate_limit = (int (*)(struct ibv_qp *, struct ibv_qp_rate_limit_attr *))lacks_modify_qp_rate_limit;
}
