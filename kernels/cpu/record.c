/* record: what a call did, for the host to read; the result of one that is not applied is 0. */
#include "kernels/cpu/sparse_cpu.h"

static void add_applied(struct tri_counters *counters, const struct tri_record *record)
{
    counters->applied_calls++;
    counters->selected = *record->selected;
    counters->applied = *record->applied;
    counters->total_selected += *record->selected;
    counters->total_applied += *record->applied;
    counters->words_sent += record->words_sent;
    counters->words_received += record->words_received;
    counters->bytes_sent += record->bytes_sent;
    counters->bytes_received += record->bytes_received;
    counters->fallbacks = *record->fallbacks;
    counters->exact_fallbacks += record->exact_fallbacks;
    if (record->norm != NULL)
        counters->norm = *record->norm;
}

/* Other threads read at any time, in any order: word by word, and then they compare the check. */
static void publish(struct tri_counters *published, const struct tri_counters *counters)
{
    uint64_t words[TRI_COUNTERS_WORDS];
    uint64_t *to = (uint64_t *)(void *)published;
    memcpy(words, counters, sizeof words);
    for (size_t i = 0; i < TRI_COUNTERS_WORDS; i++)
        __atomic_store_n(&to[i], words[i], __ATOMIC_RELAXED);
}

trib_status tri_cpu_sparse_record(const struct tri_record *record, trib_stream stream)
{
    struct tri_counters *counters = record->counters;
    const trib_status status =
        tri_cpu_sparse_clear_result(&record->result, record->decision, stream);
    counters->outcome = *record->outcome;
    counters->ended++;
    counters->non_finite_calls +=
        *record->outcome == TRI_OUTCOME_NON_FINITE || *record->outcome == TRI_OUTCOME_OVERFLOW;
    if (*record->decision != 0)
        add_applied(counters, record);
    counters->check = tri_counters_check(counters);
    publish(record->published, counters);
    return status;
}
