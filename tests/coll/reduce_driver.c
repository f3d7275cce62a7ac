/* Runs the reductions that its standard input names, for test_reduce.py: for
 * each an order and the elements of both arrays; the answer and the result of
 * the reduction, if there is one, go to the standard output. */
#include <stdio.h>
#include <stdlib.h>

#include "pscompy/coll/reduce.h"

typedef struct order {
    uint32_t op, type;
    uint64_t n;
    /* number of elements before those that are combined */
    uint64_t shift;
} order_t;

typedef struct answer {
    uint32_t known, slow;
    uint64_t size;
} answer_t;

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* Memory that ends with the last element. */
static char *take(const order_t *order, size_t size)
{
    char *block = malloc((order->shift + order->n) * size);

    must(block || order->shift + order->n == 0);
    must(fread(block + order->shift * size, size, order->n, stdin) == order->n);
    return block;
}

static void run(const order_t *order)
{
    size_t size = psc_type_size((psc_type_t)order->type), at;
    psc_reduce_t reduce =
        psc_reduction((psc_op_t)order->op, (psc_type_t)order->type);
    answer_t answer = {.known = reduce != NULL,
                       .slow = psc_reduction_slow((psc_op_t)order->op,
                                                  (psc_type_t)order->type),
                       .size = size};
    char *in = take(order, size), *inout = take(order, size);

    at = order->shift * size;
    must(fwrite(&answer, sizeof answer, 1, stdout) == 1);
    if (reduce) {
        reduce(in + at, inout + at, order->n);
        must(fwrite(inout + at, size, order->n, stdout) == order->n);
    }
    fflush(stdout);
    free(in);
    free(inout);
}

int main(void)
{
    order_t order;

    must(!psc_reduction(PSC_OP_COUNT, PSC_TYPE_INT8));
    must(!psc_reduction(PSC_OP_SUM, PSC_TYPE_COUNT));
    while (fread(&order, sizeof order, 1, stdin) == 1)
        run(&order);
    return 0;
}
