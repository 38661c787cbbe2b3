/* What the processes of an aborted communicator tell each other to agree on a new id, as bytes. All
 * numbers are little-endian.
 *
 *   0  kind (4)   4  ranks that remain (4)   8  digest of them (8)   16  number of the attempt (8)
 *  24  join: ranks of the sender's process among them (4); refusal: status (4)
 *  28  id: the id; refusal: its text */
#include "csrc/core/new_id_message.h"

#include <string.h>

#include "csrc/base/bytes.h"
#include "csrc/base/text.h"

enum { HEADER = TRI_NEW_ID_HEADER };

_Static_assert(sizeof(trib_id) < TRI_DETAIL_SIZE, "the longest message is a refusal");

size_t tri_new_id_pack(uint8_t out[TRI_NEW_ID_BYTES], const struct tri_new_id_message *message)
{
    tri_store_le(out, (uint32_t)message->kind, 4);
    tri_store_le(out + 4, (uint32_t)message->n, 4);
    tri_store_le(out + 8, message->digest, 8);
    tri_store_le(out + 16, message->attempt, 8);
    tri_store_le(out + 24, (uint32_t)message->number, 4);
    if (message->kind == TRI_NEW_ID_ID) {
        memcpy(out + HEADER, &message->id, sizeof message->id);
        return HEADER + sizeof message->id;
    }
    if (message->kind != TRI_NEW_ID_REFUSAL)
        return HEADER;
    memcpy(out + HEADER, message->text, strlen(message->text));
    return HEADER + strlen(message->text);
}

bool tri_new_id_unpack(struct tri_new_id_message *out, const uint8_t *bytes, size_t length)
{
    const uint64_t kind = length < HEADER ? 0 : tri_load_le(bytes, 4);
    memset(out, 0, sizeof *out);
    if (kind == 0 || kind > TRI_NEW_ID_REFUSAL)
        return false;
    out->kind = (enum tri_new_id_kind)kind;
    out->n = (int32_t)tri_load_le(bytes + 4, 4);
    out->digest = tri_load_le(bytes + 8, 8);
    out->attempt = tri_load_le(bytes + 16, 8);
    out->number = (int32_t)tri_load_le(bytes + 24, 4);
    const bool is_id = kind == TRI_NEW_ID_ID, is_refusal = kind == TRI_NEW_ID_REFUSAL;
    if (is_id && length == HEADER + sizeof out->id)
        memcpy(&out->id, bytes + HEADER, sizeof out->id);
    else if (is_refusal && length - HEADER < sizeof out->text && out->number != TRIB_OK)
        tri_text_printable(out->text, bytes + HEADER, length - HEADER);
    else if (is_id || is_refusal || length != HEADER)
        return false;
    return out->n > 0 && (kind != TRI_NEW_ID_JOIN || (out->number > 0 && out->number <= out->n));
}
