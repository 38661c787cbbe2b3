/* What ranks in different processes tell each other about their calls, as bytes.
 *
 *   0  kind (1)   1  recorded (1)   2  newest known (1)   3  asked known (1)   4  0 (4)
 *   8  question   16 collective   24 entered   32 issued   40 ended (8 each)
 *  48  newest, then asked, each:
 *       0  number   8  collective   16 count   24 age in ns (8 each)
 *      32  peer    36  timeout_ms (4 each)     40  operation (2)
 *      42  dtype   43  op   44  all ranks (1 each)   45  0 (3)   48  algorithm, ends with 0 (24) */
#include "csrc/core/remote_message.h"

#include <stdio.h>
#include <string.h>

#include "csrc/base/bytes.h"
#include "csrc/core/operation.h"

enum { NAME_AT = 48 };

void tri_call_copy_set(struct tri_call_copy *out, const struct tri_recorded *record,
                       uint64_t now_ns)
{
    (void)snprintf(out->algorithm, sizeof out->algorithm, "%s",
                   record->algorithm == NULL ? "" : record->algorithm);
    out->known = true;
    out->record = *record;
    out->record.algorithm = NULL;
    out->record.stream = 0;
    out->record.entered_ns = tri_recorded_age(record, now_ns);
}

static void pack_call(uint8_t *out, const struct tri_call_copy *call)
{
    const struct tri_recorded *record = &call->record;
    if (!call->known)
        return;
    tri_store_le(out, record->number, 8);
    tri_store_le(out + 8, record->collective, 8);
    tri_store_le(out + 16, record->count, 8);
    tri_store_le(out + 24, record->entered_ns, 8);
    tri_store_le(out + 32, (uint32_t)record->peer, 4);
    tri_store_le(out + 36, record->timeout_ms, 4);
    tri_store_le(out + 40, (uint32_t)record->operation, 2);
    out[42] = (uint8_t)record->dtype;
    out[43] = (uint8_t)record->op;
    out[44] = record->all_ranks;
    memcpy(out + NAME_AT, call->algorithm, sizeof call->algorithm);
}

void tri_remote_pack(uint8_t out[TRI_REMOTE_BYTES], const struct tri_remote_message *message)
{
    memset(out, 0, TRI_REMOTE_BYTES);
    out[0] = (uint8_t)message->kind;
    out[1] = message->recorded;
    out[2] = message->newest.known;
    out[3] = message->asked.known;
    tri_store_le(out + 8, message->question, 8);
    tri_store_le(out + 16, message->collective, 8);
    tri_store_le(out + 24, message->entered, 8);
    tri_store_le(out + 32, message->issued, 8);
    tri_store_le(out + 40, message->ended, 8);
    pack_call(out + 48, &message->newest);
    pack_call(out + 48 + TRI_REMOTE_CALL_BYTES, &message->asked);
}

/* It goes to logs. */
static bool unpack_algorithm(struct tri_call_copy *out, const uint8_t *bytes)
{
    memcpy(out->algorithm, bytes, sizeof out->algorithm);
    if (memchr(out->algorithm, '\0', sizeof out->algorithm) == NULL)
        return false;
    for (const char *c = out->algorithm; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f)
            return false;
    return true;
}

static bool unpack_call(struct tri_call_copy *out, const uint8_t *bytes)
{
    struct tri_recorded *record = &out->record;
    if (!out->known)
        return true;
    record->number = tri_load_le(bytes, 8);
    record->collective = tri_load_le(bytes + 8, 8);
    record->count = tri_load_le(bytes + 16, 8);
    record->entered_ns = tri_load_le(bytes + 24, 8);
    record->peer = (int32_t)tri_load_le(bytes + 32, 4);
    record->timeout_ms = (uint32_t)tri_load_le(bytes + 36, 4);
    record->operation = (int)tri_load_le(bytes + 40, 2);
    record->dtype = bytes[42];
    record->op = bytes[43];
    record->all_ranks = bytes[44] != 0;
    return record->operation < TRI_OPERATIONS && record->peer >= -1 &&
           (record->dtype == 0 || trib_dtype_size(record->dtype) > 0) && record->op <= TRIB_AVG &&
           unpack_algorithm(out, bytes + NAME_AT);
}

bool tri_remote_unpack(struct tri_remote_message *out, const uint8_t *bytes, size_t length)
{
    memset(out, 0, sizeof *out);
    if (length != TRI_REMOTE_BYTES || bytes[0] < TRI_REMOTE_QUESTION ||
        bytes[0] > TRI_REMOTE_STOPPED)
        return false;
    out->kind = (enum tri_remote_kind)bytes[0];
    out->recorded = bytes[1] != 0;
    out->newest.known = bytes[2] != 0;
    out->asked.known = bytes[3] != 0;
    out->question = tri_load_le(bytes + 8, 8);
    out->collective = tri_load_le(bytes + 16, 8);
    out->entered = tri_load_le(bytes + 24, 8);
    out->issued = tri_load_le(bytes + 32, 8);
    out->ended = tri_load_le(bytes + 40, 8);
    return unpack_call(&out->newest, bytes + 48) &&
           unpack_call(&out->asked, bytes + 48 + TRI_REMOTE_CALL_BYTES);
}
