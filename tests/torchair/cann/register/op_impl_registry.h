/* For tests: what bridges/torchair/python/dovetail_ge.h uses of CANN's header of this name, with the same names, types and
 * layout. Set DOVETAIL_CANN_HEADERS to test with CANN's own. */
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ge
{
enum DataType {
    DT_FLOAT = 0,
    DT_FLOAT16 = 1,
    DT_INT8 = 2,
    DT_INT32 = 3,
    DT_UINT8 = 4,
    DT_INT16 = 6,
    DT_UINT16 = 7,
    DT_UINT32 = 8,
    DT_INT64 = 9,
    DT_UINT64 = 10,
    DT_DOUBLE = 11,
    DT_BOOL = 12,
    DT_COMPLEX64 = 16,
    DT_COMPLEX128 = 17,
    DT_BF16 = 27,
    DT_UNDEFINED = 28
};
constexpr uint32_t GRAPH_SUCCESS = 0, GRAPH_FAILED = 0xFFFFFFFF;
} // namespace ge

namespace gert
{
struct Shape {
    static constexpr size_t kMaxDimNum = 25;
    size_t GetDimNum() const { return n; }
    void SetDimNum(size_t to) { n = to; }
    int64_t GetDim(size_t i) const { return dims[i]; }
    void SetDim(size_t i, int64_t to) { dims[i] = to; }

  private:
    size_t n;
    int64_t dims[kMaxDimNum];
    uint8_t reserved[40];
};

struct CompileTimeTensorDesc {
    ge::DataType GetDataType() const { return type; }

  private:
    ge::DataType type;
    uint8_t rest[140];
};

struct AnchorInstanceInfo {
    size_t GetInstanceNum() const { return n; }
    size_t GetInstanceStart() const { return start; }

  private:
    uint32_t start, n;
    uint8_t reserved[40];
};

template <class T> struct TypedContinuousVector {
    size_t GetSize() const { return size; }
    const T *GetData() const { return reinterpret_cast<const T *>(this + 1); }

  private:
    size_t capacity, size;
    uint8_t reserved[40];
};

class RuntimeAttrs
{
  public:
    template <class T> const T *GetAttrPointer(size_t i) const { return static_cast<const T *>(GetPointerByIndex(i)); }
    const int64_t *GetInt(size_t i) const { return GetAttrPointer<int64_t>(i); }
    const float *GetFloat(size_t i) const { return GetAttrPointer<float>(i); }
    const bool *GetBool(size_t i) const { return GetAttrPointer<bool>(i); }
    const char *GetStr(size_t i) const { return GetAttrPointer<char>(i); }
    const TypedContinuousVector<int64_t> *GetListInt(size_t i) const { return GetAttrPointer<TypedContinuousVector<int64_t>>(i); }
    size_t GetAttrNum() const;

  private:
    const void *GetPointerByIndex(size_t i) const;
};

class ExtendedKernelContext
{
  public:
    const AnchorInstanceInfo *GetIrInputInstanceInfo(size_t i) const { return i < node->ir_inputs ? anchors() + i : nullptr; }
    const CompileTimeTensorDesc *GetDynamicInputDesc(size_t i, size_t k) const
    {
        return there(i, k) ? descs() + anchors()[i].GetInstanceStart() + k : nullptr;
    }
    const RuntimeAttrs *GetAttrs() const
    {
        return reinterpret_cast<const RuntimeAttrs *>(descs() + node->inputs + node->outputs);
    }
    size_t GetComputeNodeOutputNum() const { return node->outputs; }
    const char *GetNodeName() const { return node->name; }
    const char *GetNodeType() const { return node->type; }

  protected:
    union Value {
        void *pointer;
        unsigned char inplace[sizeof(void *)];
    };
    bool there(size_t i, size_t k) const { return i < node->ir_inputs && k < anchors()[i].GetInstanceNum(); }
    Value *input(size_t i, size_t k) const { return there(i, k) ? values[anchors()[i].GetInstanceStart() + k] : nullptr; }
    Value *output(size_t i) const { return i < noutputs ? values[ninputs + i] : nullptr; }

  private:
    struct Node {
        const char *type, *name;
        size_t ir_inputs, inputs, outputs, ir_outputs, attrs_size;
        uint8_t reserved[24];
    };
    const AnchorInstanceInfo *anchors() const { return reinterpret_cast<const AnchorInstanceInfo *>(node + 1); }
    const CompileTimeTensorDesc *descs() const
    {
        return reinterpret_cast<const CompileTimeTensorDesc *>(anchors() + node->ir_inputs);
    }
    size_t ninputs, noutputs;
    const Node *node;
    const void *extend;
    Value **outputs;
    Value *values[1];
};

class InferShapeContext : public ExtendedKernelContext
{
  public:
    const Shape *GetDynamicInputShape(size_t i, size_t k) const
    {
        return there(i, k) ? static_cast<const Shape *>(input(i, k)->pointer) : nullptr;
    }
    Shape *GetOutputShape(size_t i) { return output(i) ? static_cast<Shape *>(output(i)->pointer) : nullptr; }
};

class InferDataTypeContext : public ExtendedKernelContext
{
  public:
    ge::DataType GetDynamicInputDataType(size_t i, size_t k) const
    {
        return there(i, k) ? *reinterpret_cast<const ge::DataType *>(input(i, k)->inplace) : ge::DT_UNDEFINED;
    }
    uint32_t SetOutputDataType(size_t i, ge::DataType to)
    {
        if (!output(i))
            return ge::GRAPH_FAILED;
        *reinterpret_cast<ge::DataType *>(output(i)->inplace) = to;
        return ge::GRAPH_SUCCESS;
    }
};

class OpImplRegisterV2Impl;
class OpImplRegisterV2
{
  public:
    using InferShapeKernelFunc = uint32_t (*)(InferShapeContext *);
    using InferDataTypeKernelFunc = uint32_t (*)(InferDataTypeContext *);
    explicit OpImplRegisterV2(const char *type);
    OpImplRegisterV2(const OpImplRegisterV2 &other);
    ~OpImplRegisterV2();
    OpImplRegisterV2 &InferShape(InferShapeKernelFunc f);
    OpImplRegisterV2 &InferDataType(InferDataTypeKernelFunc f);

  private:
    std::unique_ptr<OpImplRegisterV2Impl> impl_;
};
} // namespace gert

#define IMPL_OP(type) __attribute__((unused)) static gert::OpImplRegisterV2 registered_##type = gert::OpImplRegisterV2(#type)
