/* Memory of a call: first a buffer inside ext_call, then blocks of malloc(). ext_call_end() frees the blocks, and releases the
 * references to objects that the call holds. */
#include "extension.h"

void *ext_call_alloc(ext_call *c, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size <= EXT_CALL_MEMORY_SIZE - c->memory_used) {
        void *p = c->memory + c->memory_used;
        c->memory_used += size;
        return p;
    }
    ext_block *block = PyMem_Malloc(16 + size);
    if (!block) {
        PyErr_NoMemory();
        return NULL;
    }
    block->next = c->blocks;
    c->blocks = block;
    return (char *)block + 16;
}

int ext_call_add_reference(ext_call *c, PyObject *take)
{
    ext_reference *k = ext_call_alloc(c, sizeof *k);
    if (!k) {
        Py_DECREF(take);
        return -1;
    }
    k->object = take;
    k->next = c->references;
    c->references = k;
    return 0;
}
