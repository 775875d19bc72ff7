/* rsockets, sockets over RDMA: programs link their names, of which most never call one. weft does not have them. */
#include "weft.h"

#define LACKS(name) \
    long name(void) \
    { \
        weft_say(#name ": weft's librdmacm has no rsockets"); \
        errno = ENOSYS; \
        return -1; \
    }
LACKS(raccept) LACKS(rbind) LACKS(rclose) LACKS(rconnect) LACKS(rfcntl) LACKS(rgetpeername) LACKS(rgetsockname)
LACKS(rgetsockopt) LACKS(riomap) LACKS(riounmap) LACKS(riowrite) LACKS(rlisten) LACKS(rpoll) LACKS(rread)
LACKS(rreadv) LACKS(rrecv) LACKS(rrecvfrom) LACKS(rrecvmsg) LACKS(rselect) LACKS(rsend) LACKS(rsendmsg)
LACKS(rsendto) LACKS(rsetsockopt) LACKS(rshutdown) LACKS(rsocket) LACKS(rwrite) LACKS(rwritev)
