/* Word of an abort that takes its time: in place of the library's tri_peers_send, which the program is linked
 * with --wrap for. */
#ifndef TRI_TESTS_PEERS_DELAY_H
#define TRI_TESTS_PEERS_DELAY_H

/* From now on each word of an abort leaves this process so much later; 0, at first: at once. */
void delay_aborts(int ms);
/* Each word that this process has stopped as well; and its questions and answers. */
void delay_answers(int ms);

#endif
