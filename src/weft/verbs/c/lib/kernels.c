/* Kernels of weft.verbs.c.kernels, which numba compiles when this library is compiled, as functions of C. Numba's write
   their result to the first argument and return a status, which is never an error in these. */
#include "weft.h"

#define ONE int64_t a
#define TWO int64_t a, int64_t b
#define THREE int64_t a, int64_t b, int64_t c

#define KERNEL(name, type, parameters, ...)                  \
    int weft_kernel_##name(type *, void **, parameters);     \
    int64_t weft_##name(parameters)                          \
    {                                                        \
        type result = 0;                                     \
        void *error;                                         \
        weft_kernel_##name(&result, &error, __VA_ARGS__);    \
        return (int64_t)result;                              \
    }

KERNEL(post, int64_t, ONE, a)
KERNEL(lock, uint8_t, TWO, a, b)
KERNEL(unlock, void *, ONE, a)
KERNEL(load, int64_t, ONE, a)
KERNEL(publish, void *, TWO, a, b)
KERNEL(free_from, void *, TWO, a, b)
KERNEL(take, int64_t, TWO, a, b)
KERNEL(add, int64_t, THREE, a, b, c)
KERNEL(send_train, int64_t, ONE, a)
KERNEL(receive_burst, int64_t, ONE, a)

/* The VCRC of a packet of a lab: weft.wire.crc. */
static int64_t weft_vcrc(int64_t packet, int64_t length)
{
    static const uint16_t table[256] = WEFT_CRC16_TABLE;
    uint16_t crc = 0xFFFF;
    for (int64_t n = 0; n < length; n++) crc = crc >> 8 ^ table[(crc ^ ((const uint8_t *)packet)[n]) & 0xFF];
    return crc ^ 0xFFFF;
}

#define AT(name) .name = (uintptr_t)weft_##name
const struct weft_Linked weft_kernels = {AT(lock), AT(unlock), AT(load), AT(publish),    AT(free_from),    AT(take),
                                         AT(add),  AT(post),   AT(vcrc), AT(send_train), AT(receive_burst)};
