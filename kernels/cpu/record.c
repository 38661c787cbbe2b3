/* record: what a call did, for the host to read; the result of one that is not applied is 0. */
#include "kernels/cpu/sparse_cpu.h"

/* The counters have one writer, this stream, and readers at any time in other threads: every
 * field is stored by itself, after the odd version (release), and a reader that has seen an odd
 * or a changed version reads again. */
static void put(uint64_t *field, uint64_t value)
{
    __atomic_store_n(field, value, __ATOMIC_RELEASE);
}

static void add(uint64_t *field, uint64_t value)
{
    put(field, *field + value);
}

static void record_applied(struct tri_counters *counters, const struct tri_record *record)
{
    put(&counters->selected, *record->selected);
    put(&counters->applied, *record->applied);
    add(&counters->applied_calls, 1);
    add(&counters->total_selected, *record->selected);
    add(&counters->total_applied, *record->applied);
    add(&counters->words_sent, record->words_sent);
    add(&counters->words_received, record->words_received);
    add(&counters->bytes_sent, record->bytes_sent);
    add(&counters->bytes_received, record->bytes_received);
    put(&counters->fallbacks, *record->fallbacks);
    add(&counters->exact_fallbacks, record->exact_fallbacks);
    if (record->norm != NULL)
        __atomic_store(&counters->norm, (double[]){*record->norm}, __ATOMIC_RELEASE);
}

trib_status tri_cpu_sparse_record(const struct tri_record *record, trib_stream stream)
{
    struct tri_counters *counters = record->counters;
    const trib_status status =
        tri_cpu_sparse_clear_result(&record->result, record->decision, stream);
    __atomic_store_n(&counters->version, counters->version + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&counters->outcome, *record->outcome, __ATOMIC_RELEASE);
    add(&counters->ended, 1);
    add(&counters->non_finite_calls,
        *record->outcome == TRI_OUTCOME_NON_FINITE || *record->outcome == TRI_OUTCOME_OVERFLOW);
    if (*record->decision != 0)
        record_applied(counters, record);
    __atomic_store_n(&counters->version, counters->version + 1, __ATOMIC_RELEASE);
    return status;
}
