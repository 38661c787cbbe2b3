/* What the two ends of a channel derive from the communicator's id. */
#define _GNU_SOURCE
#include "csrc/peers/proof.h"

#include <string.h>

static const char domain[] = "tributary peers, version 1";

void tri_proof_key(uint8_t key[TRI_MAC_KEY], const uint8_t *material, size_t n)
{
    struct tri_mac mac;
    tri_mac_begin(&mac, TRI_MAC_KEY, NULL, 0);
    tri_mac_add(&mac, domain, sizeof domain);
    tri_mac_add(&mac, material, n);
    tri_mac_end(&mac, key);
    explicit_bzero(&mac, sizeof mac);
}

static void add_number(struct tri_mac *mac, int32_t number)
{
    const uint32_t u = (uint32_t)number;
    const uint8_t bytes[4] = {(uint8_t)u, (uint8_t)(u >> 8), (uint8_t)(u >> 16),
                              (uint8_t)(u >> 24)};
    tri_mac_add(mac, bytes, sizeof bytes);
}

void tri_proof_derive(uint8_t out[TRI_PROOF], const uint8_t key[TRI_MAC_KEY],
                      const struct tri_session *session, enum tri_purpose purpose)
{
    struct tri_mac mac;
    tri_mac_begin(&mac, TRI_PROOF, key, TRI_MAC_KEY);
    add_number(&mac, (int32_t)purpose);
    add_number(&mac, session->connector);
    add_number(&mac, session->acceptor);
    add_number(&mac, session->size);
    tri_mac_add(&mac, session->connector_nonce, TRI_NONCE);
    tri_mac_add(&mac, session->acceptor_nonce, TRI_NONCE);
    tri_mac_end(&mac, out);
    explicit_bzero(&mac, sizeof mac);
}
