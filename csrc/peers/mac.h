/* BLAKE2s (RFC 7693): a hash, and with a key a message authentication code (MAC). */
#ifndef TRI_PEERS_MAC_H
#define TRI_PEERS_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRI_MAC_KEY = 32, TRI_MAC_MAX = 32 };

/* One computation: begin, add any number of times, end. Its fields belong to mac.c. */
struct tri_mac {
    uint32_t chain[8];
    uint64_t compressed; /* bytes */
    uint8_t block[64];
    size_t filled; /* of the block */
    size_t out_bytes;
};

/* 1 <= out_bytes <= TRI_MAC_MAX, key_bytes <= TRI_MAC_KEY. Without a key it is a hash. */
void tri_mac_begin(struct tri_mac *mac, size_t out_bytes, const uint8_t *key, size_t key_bytes);
void tri_mac_add(struct tri_mac *mac, const void *bytes, size_t n);
void tri_mac_end(struct tri_mac *mac, uint8_t *out); /* out_bytes */

/* Takes equally long wherever the bytes differ: time says nothing about a MAC that is expected. */
bool tri_mac_equal(const uint8_t *a, const uint8_t *b, size_t n);

#endif
