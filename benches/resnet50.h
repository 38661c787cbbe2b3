/* The gradients of ResNet-50, as a training step makes them. */
#ifndef TRI_BENCHES_RESNET50_H
#define TRI_BENCHES_RESNET50_H

#include <stddef.h>

enum { RESNET50_TENSORS = 161 };

/* The lengths of the parameter tensors, in the order of the forward pass; 25,557,032 in all. */
void resnet50(size_t counts[RESNET50_TENSORS]);

#endif
