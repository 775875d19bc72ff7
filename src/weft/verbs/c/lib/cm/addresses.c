/* Socket addresses as GIDs: IPv6 unchanged, IPv4 as mapped IPv6; AF_IB addresses contain a GID. */
#include <netdb.h>

#include "cm.h"

static const uint8_t IPV4[12] = {[10] = 0xff, [11] = 0xff};

int gid_of(const struct sockaddr *address, uint8_t gid[16])
{
    if (!address) return EINVAL;
    if (address->sa_family == AF_INET) {
        memcpy(gid, IPV4, sizeof(IPV4));
        memcpy(gid + sizeof(IPV4), &((const struct sockaddr_in *)address)->sin_addr, 4);
        return 0;
    }
    if (address->sa_family == AF_INET6) {
        memcpy(gid, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
        return 0;
    }
    if (address->sa_family == AF_IB) {
        memcpy(gid, ((const struct sockaddr_ib *)address)->sib_addr, 16);
        return 0;
    }
    weft_say("an address of family %d: weft's connection manager has AF_INET, AF_INET6 and AF_IB", address->sa_family);
    return EAFNOSUPPORT;
}

uint16_t *port_of(struct sockaddr *address)
{
    static uint16_t none;
    if (address->sa_family == AF_INET) return &((struct sockaddr_in *)address)->sin_port;
    if (address->sa_family == AF_INET6) return &((struct sockaddr_in6 *)address)->sin6_port;
    if (address->sa_family == AF_IB) return (uint16_t *)&((struct sockaddr_ib *)address)->sib_sid + 3; /* its last bytes */
    none = 0;
    return &none;
}

socklen_t length_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
           : address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                            : sizeof(struct sockaddr_ib);
}

void set_address(struct sockaddr_storage *where, const struct rdma_cm_id *id, int family, const uint8_t gid[16], uint16_t port)
{
    memset(where, 0, sizeof(*where));
    if (family == AF_IB) {
        struct sockaddr_ib *own = (struct sockaddr_ib *)where;
        own->sib_family = AF_IB, own->sib_pkey = 0xffff;
        own->sib_sid = htobe64((uint64_t)id->ps << 16), own->sib_sid_mask = UINT64_MAX;
        memcpy(own->sib_addr, gid, 16);
        *port_of((struct sockaddr *)where) = port;
    } else if (memcmp(gid, IPV4, sizeof(IPV4)) == 0) {
        struct sockaddr_in *plain = (struct sockaddr_in *)where;
        plain->sin_family = AF_INET, plain->sin_port = port;
        memcpy(&plain->sin_addr, gid + sizeof(IPV4), 4);
    } else {
        struct sockaddr_in6 *long_one = (struct sockaddr_in6 *)where;
        long_one->sin6_family = AF_INET6, long_one->sin6_port = port;
        memcpy(&long_one->sin6_addr, gid, 16);
    }
}

uint16_t rdma_get_src_port(struct rdma_cm_id *id) { return *port_of(&id->route.addr.src_addr); }
uint16_t rdma_get_dst_port(struct rdma_cm_id *id) { return *port_of(&id->route.addr.dst_addr); }

/* -- names -------------------------------------------------------------------------------------------------------- */

static struct sockaddr *copy_of(const struct sockaddr *address, socklen_t length)
{
    struct sockaddr *made = address ? malloc(length) : NULL;
    if (made) memcpy(made, address, length);
    return made;
}

/* Resolve the name of a host of the lab; EAI_NONAME without a lab or such a host. */
static int find_host(const char *node, const char *service, int family, struct addrinfo **found)
{
    static const struct addrinfo numeric = {.ai_family = AF_INET6, .ai_flags = AI_NUMERICHOST};
    uint8_t gid[16];
    struct weft_FindHost call = {.name = (uintptr_t)node, .gid = (uintptr_t)gid};
    if (!node || family == AF_INET || ASK(FindHost, &call) || !call.is_there) return EAI_NONAME;
    int error = getaddrinfo("::", service, &numeric, found);
    if (!error) memcpy(&((struct sockaddr_in6 *)(*found)->ai_addr)->sin6_addr, gid, 16);
    return error;
}

static int look_up(const char *node, const char *service, const struct rdma_addrinfo *hints, struct addrinfo **found)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    int flags = hints ? hints->ai_flags : 0;
    if (flags & RAI_PASSIVE) wanted.ai_flags |= AI_PASSIVE;
    if (flags & RAI_NUMERICHOST) wanted.ai_flags |= AI_NUMERICHOST;
    if (hints && (flags & RAI_FAMILY || hints->ai_family)) wanted.ai_family = hints->ai_family;
    if (hints && hints->ai_port_space == RDMA_PS_UDP) wanted.ai_socktype = SOCK_DGRAM;
    if (!(flags & RAI_NUMERICHOST) && find_host(node, service, wanted.ai_family, found) == 0) return 0;
    return getaddrinfo(node, service, &wanted, found);
}

void rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
    while (info) {
        struct rdma_addrinfo *next = info->ai_next;
        free(info->ai_src_addr), free(info->ai_dst_addr);
        free(info);
        info = next;
    }
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                     struct rdma_addrinfo **result)
{
    struct addrinfo *found = NULL;
    if (!node && !service && !hints) return in_errno(EINVAL);
    if (node || service) {
        int error = look_up(node, service, hints, &found);
        if (error) {
            in_errno(error == EAI_SYSTEM ? errno : error == EAI_MEMORY ? ENOMEM : ENODEV);
            return error;
        }
    }
    struct rdma_addrinfo *made = calloc(1, sizeof(*made));
    if (!made) {
        if (found) freeaddrinfo(found);
        return in_errno(ENOMEM);
    }
    if (hints) made->ai_flags = hints->ai_flags, made->ai_family = hints->ai_family;
    made->ai_qp_type = hints && hints->ai_qp_type ? hints->ai_qp_type : IBV_QPT_RC;
    made->ai_port_space = hints && hints->ai_port_space ? hints->ai_port_space
                          : made->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
    if (hints && hints->ai_port_space == RDMA_PS_UDP && !hints->ai_qp_type) made->ai_qp_type = IBV_QPT_UD;
    int is_passive = made->ai_flags & RAI_PASSIVE;
    if (found) {
        made->ai_family = found->ai_family;
        struct sockaddr **where = is_passive ? &made->ai_src_addr : &made->ai_dst_addr;
        *where = copy_of(found->ai_addr, found->ai_addrlen);
        *(is_passive ? &made->ai_src_len : &made->ai_dst_len) = found->ai_addrlen;
        freeaddrinfo(found);
    } else if (hints->ai_dst_len) { /* addresses instead of names */
        made->ai_dst_addr = copy_of(hints->ai_dst_addr, hints->ai_dst_len);
        made->ai_dst_len = hints->ai_dst_len;
    }
    if (!made->ai_src_len && hints && hints->ai_src_len) {
        made->ai_src_addr = copy_of(hints->ai_src_addr, hints->ai_src_len);
        made->ai_src_len = hints->ai_src_len;
    }
    *result = made;
    return 0;
}
