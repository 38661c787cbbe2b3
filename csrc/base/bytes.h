/* Little-endian numbers in messages. */
#ifndef TRI_BASE_BYTES_H
#define TRI_BASE_BYTES_H

#include <stdint.h>

/* A number of `bytes` bytes, 8 at most. */
static inline uint64_t tri_load_le(const uint8_t *from, int bytes)
{
    uint64_t number = 0;
    for (int i = bytes - 1; i >= 0; i--)
        number = number << 8 | from[i];
    return number;
}

static inline void tri_store_le(uint8_t *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(number >> 8 * i);
}

#endif
