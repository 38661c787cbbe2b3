/* record: what a call did, for the host to read. */
#include "kernels/cpu/sparse_cpu.h"

/* The tally has one writer, this stream, and readers at any time in other threads: every field is
 * stored by itself, after the odd version (release), and a reader that has seen an odd or a changed
 * version reads again. */
static void put(uint64_t *field, uint64_t value)
{
    __atomic_store_n(field, value, __ATOMIC_RELEASE);
}

static void add(uint64_t *field, uint64_t value)
{
    put(field, *field + value);
}

static void record_applied(struct tri_tally *tally, const struct tri_record *record)
{
    put(&tally->selected, *record->selected);
    put(&tally->applied, *record->applied);
    add(&tally->applied_calls, 1);
    add(&tally->total_selected, *record->selected);
    add(&tally->total_applied, *record->applied);
    add(&tally->words_sent, record->words_sent);
    add(&tally->words_received, record->words_received);
    add(&tally->bytes_sent, record->bytes_sent);
    add(&tally->bytes_received, record->bytes_received);
    put(&tally->fallbacks, *record->fallbacks);
    add(&tally->exact_fallbacks, record->exact_fallbacks);
    if (record->norm != NULL)
        __atomic_store(&tally->norm, (double[]){*record->norm}, __ATOMIC_RELEASE);
}

trib_status tri_cpu_sparse_record(const struct tri_record *record, trib_stream stream)
{
    (void)stream;
    struct tri_tally *tally = record->tally;
    __atomic_store_n(&tally->version, tally->version + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&tally->outcome, *record->outcome, __ATOMIC_RELEASE);
    add(&tally->ended, 1);
    add(&tally->non_finite_calls, *record->outcome == TRI_OUTCOME_NON_FINITE ||
                                      *record->outcome == TRI_OUTCOME_OVERFLOW);
    if (*record->decision != 0)
        record_applied(tally, record);
    __atomic_store_n(&tally->version, tally->version + 1, __ATOMIC_RELEASE);
    return TRIB_OK;
}
