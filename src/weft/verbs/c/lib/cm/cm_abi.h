/* The binary interface of librdmacm.so.1; abi.h has that of libibverbs. A test compares every field with rdma_cma.h. */
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include "abi.h"

#define RDMA_UDP_QKEY 0x01234567

#ifndef AF_IB
#define AF_IB 27
#endif
struct sockaddr_ib {
    unsigned short sib_family;
    uint16_t sib_pkey;
    uint32_t sib_flowinfo;
    uint8_t sib_addr[16];
    uint64_t sib_sid, sib_sid_mask; /* big-endian */
    uint64_t sib_scope_id;
};

struct rdma_ib_addr {
    union ibv_gid sgid, dgid;
    uint16_t pkey;
};

struct rdma_addr {
    union {
        struct sockaddr src_addr;
        struct sockaddr_in src_sin;
        struct sockaddr_in6 src_sin6;
        struct sockaddr_storage src_storage;
    };
    union {
        struct sockaddr dst_addr;
        struct sockaddr_in dst_sin;
        struct sockaddr_in6 dst_sin6;
        struct sockaddr_storage dst_storage;
    };
    union { struct rdma_ib_addr ibaddr; } addr;
};

struct rdma_route {
    struct rdma_addr addr;
    void *path_rec;
    int num_paths;
};

struct rdma_event_channel {
    int fd;
};

struct rdma_cm_id {
    struct ibv_context *verbs;
    struct rdma_event_channel *channel;
    void *context;
    struct ibv_qp *qp;
    struct rdma_route route;
    int ps;
    uint8_t port_num;
    struct rdma_cm_event *event;
    struct ibv_comp_channel *send_cq_channel;
    struct ibv_cq *send_cq;
    struct ibv_comp_channel *recv_cq_channel;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq;
    struct ibv_pd *pd;
    int qp_type;
};

struct rdma_conn_param {
    const void *private_data;
    uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
    uint32_t qp_num;
};

struct rdma_ud_param {
    const void *private_data;
    uint8_t private_data_len;
    struct ibv_ah_attr ah_attr;
    uint32_t qp_num, qkey;
};

struct rdma_cm_event {
    struct rdma_cm_id *id, *listen_id;
    int event, status;
    union {
        struct rdma_conn_param conn;
        struct rdma_ud_param ud;
    } param;
};

struct rdma_addrinfo {
    int ai_flags, ai_family, ai_qp_type, ai_port_space;
    socklen_t ai_src_len, ai_dst_len;
    struct sockaddr *ai_src_addr, *ai_dst_addr;
    char *ai_src_canonname, *ai_dst_canonname;
    size_t ai_route_len;
    void *ai_route;
    size_t ai_connect_len;
    void *ai_connect;
    struct rdma_addrinfo *ai_next;
};

struct rdma_cm_join_mc_attr_ex {
    uint32_t comp_mask, join_flags;
    struct sockaddr *addr;
};
