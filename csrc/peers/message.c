/* A message between two ranks, as bytes. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/peers/message.h"

#include <string.h>

#include "csrc/base/bytes.h"
#include "csrc/base/text.h"
#include "csrc/peers/address.h"
#include "csrc/peers/proof.h"

enum { VERSION = 1 };

static const uint8_t magic[4] = {'T', 'R', 'P', 'M'};

/* What each type allows. Row 0 is no type. */
static const struct {
    uint32_t shortest, longest;
    bool handshake, of_owner;
} types[] = {
    [TRI_PEER_HELLO] = {TRI_NONCE, TRI_NONCE, true, false},
    [TRI_PEER_CHALLENGE] = {TRI_NONCE, TRI_NONCE, true, false},
    [TRI_PEER_PROOF] = {TRI_PROOF, TRI_PROOF, true, false},
    [TRI_PEER_REFUSAL] = {0, 0, true, false},
    [TRI_PEER_BYE] = {0, 0, false, false},
    [TRI_PEER_FD] = {8, 8, false, false},
    [TRI_PEER_PROGRESS] = {0, TRI_PEER_PAYLOAD_MAX, false, true},
    [TRI_PEER_ABORT] = {8, TRI_PEER_ABORT_MAX, false, true},
    [TRI_PEER_SHRINK] = {0, TRI_PEER_PAYLOAD_MAX, false, true},
    [TRI_PEER_ARRIVAL] = {sizeof(struct tri_peer_address), sizeof(struct tri_peer_address), false,
                          true},
    [TRI_PEER_ID] = {sizeof(trib_id), sizeof(trib_id), false, true},
    [TRI_PEER_TIME_OVER] = {0, 0, false, true},
};

static bool known(unsigned type)
{
    return type >= TRI_PEER_HELLO && type <= TRI_PEER_TIME_OVER;
}

bool tri_peer_of_handshake(enum tri_peer_type type)
{
    return types[type].handshake;
}

bool tri_peer_sendable(enum tri_peer_type type, size_t length)
{
    return known(type) && types[type].of_owner && length >= types[type].shortest &&
           length <= types[type].longest;
}

static bool header_valid(const uint8_t *bytes, const struct tri_peer_message *out)
{
    static const uint8_t no_mac[TRI_PEER_MAC];
    if (out->length < types[out->type].shortest || out->length > types[out->type].longest)
        return false;
    if (out->sender < 0 || out->receiver < 0 || tri_load_le(bytes + 6, 2) != 0 ||
        tri_load_le(bytes + 20, 4) != 0)
        return false;
    if (!types[out->type].handshake)
        return out->sequence > 0;
    return out->sequence == 0 && memcmp(bytes + TRI_PEER_MAC_AT, no_mac, sizeof no_mac) == 0;
}

enum tri_peer_parsed tri_peer_parse(const uint8_t *bytes, size_t n, struct tri_peer_message *out)
{
    memset(out, 0, sizeof *out);
    out->bytes = TRI_PEER_HEADER;
    if (n < TRI_PEER_HEADER)
        return TRI_PEER_SHORT;
    if (memcmp(bytes, magic, sizeof magic) != 0 || bytes[4] != VERSION || !known(bytes[5]))
        return TRI_PEER_INVALID;
    out->type = (enum tri_peer_type)bytes[5];
    out->length = (uint32_t)tri_load_le(bytes + 8, 4);
    out->sender = (int32_t)tri_load_le(bytes + 12, 4);
    out->receiver = (int32_t)tri_load_le(bytes + 16, 4);
    out->sequence = tri_load_le(bytes + 24, 8);
    if (!header_valid(bytes, out))
        return TRI_PEER_INVALID;
    out->bytes = TRI_PEER_HEADER + (size_t)out->length;
    out->payload = bytes + TRI_PEER_HEADER;
    return n < out->bytes ? TRI_PEER_SHORT : TRI_PEER_WHOLE;
}

void tri_peer_header(uint8_t out[TRI_PEER_HEADER], const struct tri_peer_message *message)
{
    memset(out, 0, TRI_PEER_HEADER);
    memcpy(out, magic, sizeof magic);
    out[4] = VERSION;
    out[5] = (uint8_t)message->type;
    tri_store_le(out + 8, message->length, 4);
    tri_store_le(out + 12, (uint32_t)message->sender, 4);
    tri_store_le(out + 16, (uint32_t)message->receiver, 4);
    tri_store_le(out + 24, message->sequence, 8);
}

static void compute(uint8_t out[TRI_PEER_MAC], const uint8_t *bytes, size_t n,
                    const uint8_t key[TRI_MAC_KEY])
{
    struct tri_mac mac;
    tri_mac_begin(&mac, TRI_PEER_MAC, key, TRI_MAC_KEY);
    tri_mac_add(&mac, bytes, TRI_PEER_MAC_AT);
    tri_mac_add(&mac, bytes + TRI_PEER_HEADER, n - TRI_PEER_HEADER);
    tri_mac_end(&mac, out);
}

void tri_peer_sign(uint8_t *bytes, size_t n, const uint8_t key[TRI_MAC_KEY])
{
    compute(bytes + TRI_PEER_MAC_AT, bytes, n, key);
}

bool tri_peer_signed(const uint8_t *bytes, size_t n, const uint8_t key[TRI_MAC_KEY])
{
    uint8_t expected[TRI_PEER_MAC];
    compute(expected, bytes, n, key);
    return tri_mac_equal(expected, bytes + TRI_PEER_MAC_AT, sizeof expected);
}

size_t tri_peer_abort_pack(uint8_t out[TRI_PEER_ABORT_MAX], const struct tri_peer_abort *abort)
{
    const size_t n = strnlen(abort->text, TRI_DETAIL_SIZE - 1);
    tri_store_le(out, (uint32_t)abort->status, 4);
    tri_store_le(out + 4, (uint32_t)abort->n, 4);
    for (int32_t i = 0; i < abort->n; i++)
        tri_store_le(out + 8 + 4 * i, (uint32_t)abort->lost[i], 4);
    uint8_t *text = out + 8 + 4 * abort->n;
    memcpy(text, abort->text, n);
    return (size_t)(text - out) + n;
}

bool tri_peer_abort_unpack(struct tri_peer_abort *out, const uint8_t *payload, size_t length)
{
    const uint64_t n = length < 8 ? TRI_LOST_MAX + 1 : tri_load_le(payload + 4, 4);
    if (n > TRI_LOST_MAX || length < 8 + 4 * n || length - 8 - 4 * n > TRI_DETAIL_SIZE - 1)
        return false;
    out->status = (trib_status)tri_load_le(payload, 4);
    out->n = (int32_t)n;
    for (uint64_t i = 0; i < n; i++) {
        out->lost[i] = (int32_t)tri_load_le(payload + 8 + 4 * i, 4);
        if (out->lost[i] < 0)
            return false;
    }
    tri_text_printable(out->text, payload + 8 + 4 * n, length - 8 - 4 * n);
    return out->status != TRIB_OK;
}
