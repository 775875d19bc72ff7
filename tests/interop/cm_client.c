/* Asks for a connection at a port of 127.0.0.1, and prints each event until it is refused or ended. Its channel is polled. */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1]))};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct ibv_qp_init_attr init = {.cap = {1, 1, 1, 1}, .qp_type = IBV_QPT_RC};
    struct rdma_conn_param param = {.private_data = "may I?", .private_data_len = 7, .retry_count = 7};
    struct rdma_cm_id *id;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) return 1;
    if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000)) return 2;
    for (int last = 0; !last;) {
        struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
        struct rdma_cm_event *event;
        if (poll(&ready, 1, -1) != 1 || rdma_get_cm_event(channel, &event)) return 3;
        const char *data = event->param.conn.private_data;
        printf("%s %d %.20s\n", rdma_event_str(event->event), event->status, data ? data : "");
        fflush(stdout);
        if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED && rdma_resolve_route(id, 2000)) return 4;
        if (event->event == RDMA_CM_EVENT_ROUTE_RESOLVED &&
            (rdma_create_qp(id, NULL, &init) || rdma_connect(id, &param))) return 5;
        last = event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_DISCONNECTED;
        rdma_ack_cm_event(event);
    }
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    return 0;
}
