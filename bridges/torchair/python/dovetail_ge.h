/* InferShape and InferDataType of GE (CANN's Graph Engine) for Dovetail's operators. `dovetail export --ge` writes this file
 * beside the files that include it. The C part declares libdovetail_torchair's function; the C++ part reads CANN's contexts, and
 * needs CANN's headers. */
#ifndef DOVETAIL_GE_H
#define DOVETAIL_GE_H

#include <dovetail.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An element type of GE and Dovetail's name for it. name NULL ends a table. */
typedef struct dv_ge_type {
    int32_t number;
    const char *name;
} dv_ge_type;

/* The operators of a package: the binary that `dovetail build` made, which lies beside the package's own library. The package
 * sets the first three fields and keeps the struct; libdovetail_torchair sets the others. */
typedef struct dv_ge_package {
    const char *binary;      /* the file name of the binary, such as "my_ops.so" */
    const void *beside;      /* any address in the package's library */
    const dv_ge_type *types; /* all types that the package's prototypes name; an entry with name NULL ends the table */
    void *library;
    int status;
} dv_ge_package;

/* What GE knows about a node. Inputs, attributes and outputs are numbered as in the operator's GE prototype. A dtype, ndim or
 * size of -1 is unknown. An ndim of DV_GE_WITHOUT_SHAPES means that GE asks for dtypes only. */
enum { DV_GE_WITHOUT_SHAPES = -2 };
typedef struct dv_ge_node {
    void *context;
    size_t (*count)(void *context, size_t input); /* returns the number of tensors of an input: 0 or 1, or the length of a list */
    void (*tensor)(void *context, size_t input, size_t k, int32_t *read_dtype, int32_t *ndim, int64_t sizes[DV_MAX_NDIM]);
    /* Sets *out to an attribute of this type (enum dv_field_type); a DTYPE becomes a DV_VALUE_INT with GE's number. Returns false
     * if the attribute is not known. */
    bool (*attribute)(void *context, size_t index, uint32_t type, dv_value *out);
    /* Returns the elements of an attribute that is a list, as GE has them, and their number in *size. Elements are int64_t,
     * float, bool, int32_t (GE's numbers of types), or NUL-terminated texts one after the other. NULL: the attribute is not
     * known. */
    const void *(*list)(void *context, size_t index, size_t *size);
    size_t (*noutputs)(void *context); /* returns the number of the node's outputs; each tensor of a list counts as one */
    bool (*output)(void *context, size_t index, int32_t read_dtype, int32_t ndim,
        const int64_t *sizes); /* sets one output; returns false if GE refuses it */
} dv_ge_node;

/* Infers the outputs of a node of the operator "ns::name.overload", and passes each to node->output. Returns a status;
 * dv_last_error() has the message. May be called from several threads at once. */
DV_API int dv_ge_infer(dv_ge_package *package, const char *op_name, const dv_ge_node *node);

#ifdef __cplusplus
}

#include <cstdio>
#include <cstring>

#include "register/op_impl_registry.h"

namespace dovetail_ge
{

/* The functions of a dv_ge_node that are the same for CANN's contexts of shapes and of dtypes. */
template <class Context> struct Reader {
    static Context *of(void *context) { return static_cast<Context *>(context); }

    static size_t count(void *context, size_t input)
    {
        const auto *info = of(context)->GetIrInputInstanceInfo(input);
        return info ? info->GetInstanceNum() : 0;
    }

    static size_t noutputs(void *context) { return of(context)->GetComputeNodeOutputNum(); }

    static bool attribute(void *context, size_t index, uint32_t type, dv_value *out)
    {
        const gert::RuntimeAttrs *attrs = of(context)->GetAttrs();
        if (!attrs || index >= attrs->GetAttrNum())
            return false;
        if (type == DV_FIELD_INT && attrs->GetInt(index))
            *out = dv_from_int(*attrs->GetInt(index));
        else if ((type == DV_FIELD_FLOAT || type == DV_FIELD_SCALAR) && attrs->GetFloat(index))
            *out = dv_from_float(static_cast<double>(*attrs->GetFloat(index)));
        else if (type == DV_FIELD_BOOL && attrs->GetBool(index))
            out->type = DV_VALUE_BOOL, out->as.b = *attrs->GetBool(index);
        else if (type == DV_FIELD_STRING && attrs->GetStr(index))
            out->type = DV_VALUE_STRING, out->as.s.data = attrs->GetStr(index), out->as.s.size = std::strlen(out->as.s.data);
        else if (type == DV_FIELD_DTYPE && attrs->template GetAttrPointer<ge::DataType>(index))
            *out = dv_from_int(*attrs->template GetAttrPointer<ge::DataType>(index));
        else
            return false;
        return true;
    }

    static const void *list(void *context, size_t index, size_t *size)
    {
        const gert::RuntimeAttrs *attrs = of(context)->GetAttrs();
        const auto *found = attrs && index < attrs->GetAttrNum() ? attrs->GetListInt(index) : nullptr;
        *size = found ? found->GetSize() : 0;
        return found ? found->GetData() : nullptr;
    }
};

inline void get_input_shape(void *context, size_t input, size_t k, int32_t *dtype, int32_t *ndim, int64_t sizes[DV_MAX_NDIM])
{
    const auto *c = static_cast<gert::InferShapeContext *>(context);
    const auto *desc = c->GetDynamicInputDesc(input, k);
    const gert::Shape *shape = c->GetDynamicInputShape(input, k);
    *dtype = desc && desc->GetDataType() != ge::DT_UNDEFINED ? static_cast<int32_t>(desc->GetDataType()) : -1;
    *ndim = !shape || (shape->GetDimNum() == 1 && shape->GetDim(0) == -2) ? -1 : static_cast<int32_t>(shape->GetDimNum());
    for (int32_t i = 0; i < *ndim; i++)
        sizes[i] = shape->GetDim(static_cast<size_t>(i));
}

inline bool try_set_output_shape(void *context, size_t index, int32_t, int32_t ndim, const int64_t *sizes)
{
    gert::Shape *shape = static_cast<gert::InferShapeContext *>(context)->GetOutputShape(index);
    if (!shape || ndim > static_cast<int32_t>(gert::Shape::kMaxDimNum))
        return false;
    shape->SetDimNum(ndim < 0 ? 1 : static_cast<size_t>(ndim));
    if (ndim < 0)
        shape->SetDim(0, -2);
    for (int32_t i = 0; i < ndim; i++)
        shape->SetDim(static_cast<size_t>(i), sizes[i]);
    return true;
}

inline void get_input_dtype(void *context, size_t input, size_t k, int32_t *dtype, int32_t *ndim, int64_t *)
{
    const ge::DataType found = static_cast<gert::InferDataTypeContext *>(context)->GetDynamicInputDataType(input, k);
    *dtype = found != ge::DT_UNDEFINED ? static_cast<int32_t>(found) : -1;
    *ndim = DV_GE_WITHOUT_SHAPES;
}

inline bool try_set_output_dtype(void *context, size_t index, int32_t dtype, int32_t, const int64_t *)
{
    return static_cast<gert::InferDataTypeContext *>(context)->SetOutputDataType(
               index, dtype < 0 ? ge::DT_UNDEFINED : static_cast<ge::DataType>(dtype)) == ge::GRAPH_SUCCESS;
}

template <class Context> uint32_t done(Context *context, int status)
{
    if (!status)
        return ge::GRAPH_SUCCESS;
    const char *name = context->GetNodeName(), *type = context->GetNodeType();
    std::fprintf(stderr, "dovetail: node %s (%s): %s\n", name ? name : "?", type ? type : "?", dv_last_error());
    return ge::GRAPH_FAILED;
}

inline uint32_t infer_shape(gert::InferShapeContext *context, dv_ge_package *package, const char *op)
{
    using R = Reader<gert::InferShapeContext>;
    const dv_ge_node node = { context, R::count, get_input_shape, R::attribute, R::list, R::noutputs, try_set_output_shape };
    return done(context, dv_ge_infer(package, op, &node));
}

inline uint32_t infer_dtype(gert::InferDataTypeContext *context, dv_ge_package *package, const char *op)
{
    using R = Reader<gert::InferDataTypeContext>;
    const dv_ge_node node = { context, R::count, get_input_dtype, R::attribute, R::list, R::noutputs, try_set_output_dtype };
    return done(context, dv_ge_infer(package, op, &node));
}

} // namespace dovetail_ge

/* Registers InferShape and InferDataType for one GE node. `dovetail_package` is the file's dv_ge_package. */
#define DOVETAIL_GE(node, op)                                                                                      \
    IMPL_OP(node)                                                                                                  \
        .InferShape([](gert::InferShapeContext *c) { return dovetail_ge::infer_shape(c, &dovetail_package, op); }) \
        .InferDataType([](gert::InferDataTypeContext *c) { return dovetail_ge::infer_dtype(c, &dovetail_package, op); });
#endif
#endif
