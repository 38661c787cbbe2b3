/* BLAKE2s (RFC 7693). The names v, m, a to d and sigma are the RFC's. */
#include "csrc/peers/mac.h"

#include <string.h>

enum { BLOCK = 64, ROUNDS = 10 };

static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint8_t sigma[ROUNDS][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                          {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                          {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                          {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                          {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                          {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                          {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                          {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                          {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                          {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static inline uint32_t rotate(uint32_t word, int right)
{
    return word >> right | word << (32 - right);
}

static inline void mix(uint32_t v[16], int a, int b, int c, int d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 7);
}

static void mix_round(uint32_t v[16], const uint32_t m[16], const uint8_t order[16])
{
    mix(v, 0, 4, 8, 12, m[order[0]], m[order[1]]);
    mix(v, 1, 5, 9, 13, m[order[2]], m[order[3]]);
    mix(v, 2, 6, 10, 14, m[order[4]], m[order[5]]);
    mix(v, 3, 7, 11, 15, m[order[6]], m[order[7]]);
    mix(v, 0, 5, 10, 15, m[order[8]], m[order[9]]);
    mix(v, 1, 6, 11, 12, m[order[10]], m[order[11]]);
    mix(v, 2, 7, 8, 13, m[order[12]], m[order[13]]);
    mix(v, 3, 4, 9, 14, m[order[14]], m[order[15]]);
}

static uint32_t load(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

/* Take the block into the chain; its first `n` bytes are data. */
static void compress(struct tri_mac *mac, size_t n, bool last)
{
    uint32_t v[16], m[16];
    mac->compressed += n;
    for (int i = 0; i < 8; i++) {
        v[i] = mac->chain[i];
        v[i + 8] = start[i];
    }
    v[12] ^= (uint32_t)mac->compressed;
    v[13] ^= (uint32_t)(mac->compressed >> 32);
    v[14] = last ? ~v[14] : v[14];
    for (int i = 0; i < 16; i++)
        m[i] = load(mac->block + 4 * i);
    for (int i = 0; i < ROUNDS; i++)
        mix_round(v, m, sigma[i]);
    for (int i = 0; i < 8; i++)
        mac->chain[i] ^= v[i] ^ v[i + 8];
}

void tri_mac_begin(struct tri_mac *mac, size_t out_bytes, const uint8_t *key, size_t key_bytes)
{
    memset(mac, 0, sizeof *mac);
    memcpy(mac->chain, start, sizeof start);
    mac->chain[0] ^= 0x01010000u ^ (uint32_t)key_bytes << 8 ^ (uint32_t)out_bytes;
    mac->out_bytes = out_bytes;
    if (key_bytes == 0)
        return;
    memcpy(mac->block, key, key_bytes);
    mac->filled = BLOCK;
}

/* A full block stays until more comes: the last one is compressed differently. */
void tri_mac_add(struct tri_mac *mac, const void *bytes, size_t n)
{
    for (const uint8_t *from = bytes; n > 0;) {
        if (mac->filled == BLOCK) {
            compress(mac, BLOCK, false);
            mac->filled = 0;
        }
        const size_t room = BLOCK - mac->filled, part = n < room ? n : room;
        memcpy(mac->block + mac->filled, from, part);
        mac->filled += part;
        from += part;
        n -= part;
    }
}

void tri_mac_end(struct tri_mac *mac, uint8_t *out)
{
    memset(mac->block + mac->filled, 0, BLOCK - mac->filled);
    compress(mac, mac->filled, true);
    for (size_t i = 0; i < mac->out_bytes; i++)
        out[i] = (uint8_t)(mac->chain[i / 4] >> 8 * (i % 4));
}

bool tri_mac_equal(const uint8_t *a, const uint8_t *b, size_t n)
{
    volatile uint8_t different = 0;
    for (size_t i = 0; i < n; i++)
        different = (uint8_t)(different | (a[i] ^ b[i]));
    return different == 0;
}
