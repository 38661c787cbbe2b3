/* The newest calls of one rank.
 *
 * Each slot is a sequence lock (Boehm, "Can seqlocks get along with programming language memory
 * models?", MSPC 2012): the writer sets `version` to 0, then the words, then `version`; a reader
 * believes the words if it saw the same version before and after. Stores of words are releases and
 * loads of them acquires, in place of fences, which the thread sanitizer does not know. */
#include "csrc/core/recorder.h"

#include "csrc/base/line.h"

enum { VERSION_BITS = 16 };

enum { COLLECTIVE, COUNT, ENTERED, STREAM, ALGORITHM, KIND, PEER };

/* The word KIND, from its lowest bit on; PEER holds peer and timeout_ms. */
enum { OPERATION_BITS = 16, DTYPE_BITS = 16, OP_BITS = 16 };

struct tri_recorder *tri_recorder_create(struct trib_comm *comm)
{
    struct tri_recorder *recorder = tri_line_calloc(sizeof *recorder);
    if (recorder != NULL)
        recorder->comm = comm;
    return recorder;
}

static uint64_t pack_kind(const struct tri_recorded *record, bool exact)
{
    uint64_t kind = (uint64_t)exact << 1 | record->all_ranks;
    kind = kind << OP_BITS | (uint64_t)record->op;
    kind = kind << DTYPE_BITS | (uint64_t)record->dtype;
    return kind << OPERATION_BITS | (uint64_t)record->operation;
}

static void unpack_kind(struct tri_recorded *out, uint64_t kind)
{
    out->operation = (int)(kind & ((1u << OPERATION_BITS) - 1));
    kind >>= OPERATION_BITS;
    out->dtype = (trib_dtype)(kind & ((1u << DTYPE_BITS) - 1));
    kind >>= DTYPE_BITS;
    out->op = (trib_op)(kind & ((1u << OP_BITS) - 1));
    kind >>= OP_BITS;
    out->all_ranks = (kind & 1) != 0;
    out->exact = kind >> 1 != 0;
}

static void store(struct tri_record_slot *slot, int word, uint64_t value)
{
    atomic_store_explicit(&slot->words[word], value, memory_order_release);
}

static uint64_t load(const struct tri_record_slot *slot, int word)
{
    return atomic_load_explicit(&slot->words[word], memory_order_acquire);
}

void tri_recorder_enter(struct tri_recorder *recorder, const struct tri_recorded *record,
                        trib_stream stream, uint32_t timeout_ms, bool timed)
{
    const bool exact = tri_pace_enter(&recorder->pace, timed);
    const uint64_t number = atomic_load_explicit(&recorder->issued, memory_order_relaxed) + 1;
    struct tri_record_slot *slot = &recorder->slots[number % TRI_RECORDS];
    recorder->all_ranks = record->all_ranks;
    atomic_store_explicit(&slot->version, 0, memory_order_relaxed);
    store(slot, COLLECTIVE, recorder->collectives + record->all_ranks);
    store(slot, COUNT, record->count);
    store(slot, ENTERED, recorder->pace.read_ns);
    store(slot, STREAM, (uint64_t)(uintptr_t)stream);
    store(slot, ALGORITHM, (uint64_t)(uintptr_t)record->algorithm);
    store(slot, KIND, pack_kind(record, exact));
    store(slot, PEER, (uint64_t)timeout_ms << 32 | (uint32_t)record->peer);
    atomic_store_explicit(&slot->version, number << VERSION_BITS | ++recorder->versions,
                          memory_order_release);
    atomic_store_explicit(&recorder->entered, number, memory_order_release);
}

void tri_recorder_leave(struct tri_recorder *recorder, bool issued)
{
    const uint64_t before = atomic_load_explicit(&recorder->issued, memory_order_relaxed);
    recorder->collectives += issued && recorder->all_ranks;
    if (issued) {
        atomic_store_explicit(&recorder->issued, before + 1, memory_order_release);
        return;
    }
    recorder->pace.reads = 0; /* the number comes again: each time with its own time */
    atomic_store_explicit(&recorder->entered, before, memory_order_release);
}

bool tri_recorder_read(const struct tri_recorder *recorder, uint64_t number,
                       struct tri_recorded *out)
{
    const struct tri_record_slot *slot = &recorder->slots[number % TRI_RECORDS];
    const uint64_t version = atomic_load_explicit(&slot->version, memory_order_acquire);
    const uint64_t peer = load(slot, PEER);
    *out = (struct tri_recorded){.number = version >> VERSION_BITS,
                                 .collective = load(slot, COLLECTIVE),
                                 .count = load(slot, COUNT),
                                 .entered_ns = load(slot, ENTERED),
                                 .stream = load(slot, STREAM),
                                 .algorithm = (const char *)(uintptr_t)load(slot, ALGORITHM),
                                 .timeout_ms = (uint32_t)(peer >> 32),
                                 .peer = (int32_t)(uint32_t)peer};
    unpack_kind(out, load(slot, KIND));
    return out->number == number && number != 0 &&
           atomic_load_explicit(&slot->version, memory_order_relaxed) == version;
}

bool tri_recorder_from(const struct tri_recorder *recorder, uint64_t number,
                       struct tri_recorded *out)
{
    /* The oldest ones may be replaced meanwhile. */
    for (uint64_t entered; number <= (entered = atomic_load(&recorder->entered)); number++) {
        if (entered >= number + TRI_RECORDS)
            number = entered - TRI_RECORDS + 1;
        if (tri_recorder_read(recorder, number, out))
            return true;
    }
    return false;
}

bool tri_recorder_newest(const struct tri_recorder *recorder, struct tri_recorded *out)
{
    /* Its slot may be replaced between the two loads: then there is a newer one. */
    for (uint64_t entered; (entered = atomic_load(&recorder->entered)) != 0;)
        if (tri_recorder_read(recorder, entered, out))
            return true;
    return false;
}

uint64_t tri_recorder_unmarked(const struct tri_recorder *recorder, uint64_t stream)
{
    const uint64_t entered = tri_recorder_entered(recorder);
    struct tri_recorded call;
    for (uint64_t i = 0; i < TRI_RECORDS && entered > recorder->marked + i; i++)
        if (tri_recorder_read(recorder, entered - i, &call) && call.stream == stream)
            return entered - i;
    return 0;
}

bool tri_recorder_find(const struct tri_recorder *recorder, uint64_t collective,
                       struct tri_recorded *out)
{
    const uint64_t entered = atomic_load(&recorder->entered);
    for (uint64_t i = 0; i < TRI_RECORDS && i < entered; i++)
        if (tri_recorder_read(recorder, entered - i, out) && out->all_ranks &&
            out->collective == collective)
            return true;
    return false;
}
