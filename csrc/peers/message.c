/* A message between two ranks, as bytes. */
#include "csrc/peers/message.h"

#include <string.h>

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
    [TRI_PEER_REPORT] = {0, TRI_PEER_PAYLOAD_MAX, false, true},
    [TRI_PEER_ABORT] = {4, TRI_PEER_ABORT_MAX, false, true},
    [TRI_PEER_NEW_ID] = {sizeof(trib_id), sizeof(trib_id) + 1024, false, true},
};

static uint64_t load(const uint8_t *from, int bytes)
{
    uint64_t number = 0;
    for (int i = bytes - 1; i >= 0; i--)
        number = number << 8 | from[i];
    return number;
}

static void store(uint8_t *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(number >> 8 * i);
}

static bool known(unsigned type)
{
    return type >= TRI_PEER_HELLO && type <= TRI_PEER_NEW_ID;
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
    if (out->sender < 0 || out->receiver < 0 || load(bytes + 6, 2) != 0 || load(bytes + 20, 4) != 0)
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
    out->length = (uint32_t)load(bytes + 8, 4);
    out->sender = (int32_t)load(bytes + 12, 4);
    out->receiver = (int32_t)load(bytes + 16, 4);
    out->sequence = load(bytes + 24, 8);
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
    store(out + 8, message->length, 4);
    store(out + 12, (uint32_t)message->sender, 4);
    store(out + 16, (uint32_t)message->receiver, 4);
    store(out + 24, message->sequence, 8);
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

size_t tri_peer_abort_pack(uint8_t out[TRI_PEER_ABORT_MAX], trib_status status, const char *text)
{
    const size_t room = TRI_PEER_ABORT_MAX - 4, all = strlen(text), n = all < room ? all : room;
    store(out, (uint32_t)status, 4);
    memcpy(out + 4, text, n);
    return 4 + n;
}

bool tri_peer_abort_unpack(trib_status *out_status, char out_text[TRI_DETAIL_SIZE],
                           const uint8_t *payload, size_t length)
{
    if (length < 4 || length > TRI_PEER_ABORT_MAX)
        return false;
    *out_status = (trib_status)load(payload, 4);
    for (size_t i = 4; i < length; i++)
        out_text[i - 4] = payload[i] < 0x20 || payload[i] == 0x7f ? '?' : (char)payload[i];
    out_text[length - 4] = '\0';
    return *out_status != TRIB_OK;
}
