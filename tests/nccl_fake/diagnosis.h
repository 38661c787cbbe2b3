/* The question to NCCL's RAS service, as the nccl backend over the fake asks it. */
#ifndef TRI_TESTS_NCCL_FAKE_DIAGNOSIS_H
#define TRI_TESTS_NCCL_FAKE_DIAGNOSIS_H

/* Every case; nothing is left behind. `program` is this one: one case starts it again, and then it
 * calls diagnosing_process, which asks, and returns its exit status while it waits for the
 * answer. */
void diagnosis(const char *program);
int diagnosing_process(void);

#endif
