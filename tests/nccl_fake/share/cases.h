/* The cases, a function for each file. */
#ifndef TRI_TESTS_NCCL_FAKE_SHARE_CASES_H
#define TRI_TESTS_NCCL_FAKE_SHARE_CASES_H

void share_calls(void);
void share_graphs(void);
void share_offers(void);
void share_refusals(void);
void share_failures(void);
void share_aborts(void);
void share_large(void);
void share_ends(void);

#endif
