/* Address vectors and address handles. */
#include "weft.h"

#define GRH_BYTES 40

struct weft_Address address_words(const struct ibv_ah_attr *attr)
{
    struct weft_Address words = {.flow_label = attr->grh.flow_label, .sgid_index = attr->grh.sgid_index,
                                 .hop_limit = attr->grh.hop_limit, .traffic_class = attr->grh.traffic_class,
                                 .dlid = attr->dlid, .sl = attr->sl, .src_path_bits = attr->src_path_bits,
                                 .static_rate = attr->static_rate, .is_global = attr->is_global != 0,
                                 .port_num = attr->port_num};
    memcpy(&words.dgid_begin, attr->grh.dgid.raw, 8);
    memcpy(&words.dgid_end, attr->grh.dgid.raw + 8, 8);
    return words;
}

void address_from_words(const struct weft_Address *words, struct ibv_ah_attr *attr)
{
    *attr = (struct ibv_ah_attr){.dlid = words->dlid, .sl = words->sl, .src_path_bits = words->src_path_bits,
                                 .static_rate = words->static_rate, .is_global = words->is_global,
                                 .port_num = words->port_num};
    attr->grh.flow_label = words->flow_label, attr->grh.sgid_index = words->sgid_index;
    attr->grh.hop_limit = words->hop_limit, attr->grh.traffic_class = words->traffic_class;
    memcpy(attr->grh.dgid.raw, &words->dgid_begin, 8);
    memcpy(attr->grh.dgid.raw + 8, &words->dgid_end, 8);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct weft_Address address = address_words(attr);
    struct weft_CreateAh call = {.pd = pd->handle, .address = (uintptr_t)&address};
    struct ibv_ah *ah = calloc(1, sizeof(*ah));
    int error = ah ? ASK(CreateAh, &call) : ENOMEM;
    if (error) {
        free(ah);
        return no_object(error);
    }
    *ah = (struct ibv_ah){pd->context, pd, call.handle};
    return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    int error = weft_close(ah->handle);
    if (!error) free(ah);
    return error;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
                        struct ibv_ah_attr *attr)
{
    struct weft_Address address = {0};
    struct weft_AnswerTo call = {.context = handle_of(context), .port_num = port_num, .slid = wc->slid, .sl = wc->sl,
                                 .dlid_path_bits = wc->dlid_path_bits, .wc_flags = wc->wc_flags,
                                 .grh = (uintptr_t)grh, .address = (uintptr_t)&address};
    int error = ASK(AnswerTo, &call);
    if (!error) address_from_words(&address, attr);
    return in_errno(error);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port_num)
{
    struct ibv_ah_attr attr;
    return ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6], uint16_t *vid)
{
    (void)context, (void)attr, (void)mac, (void)vid;
    return in_errno(weft_lacks("ibv_resolve_eth_l2_from_gid"));
}
