// For tests: the part of CANN's libraries that a file with IMPL_OP links to.
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "register/op_impl_registry.h"

namespace gert {
class OpImplRegisterV2Impl {
  public:
    std::string type;
};

static std::map<std::string, void *> &functions()
{
    static std::map<std::string, void *> f;
    return f;
}

OpImplRegisterV2::OpImplRegisterV2(const char *type) : impl_(new OpImplRegisterV2Impl{ type }) {}
OpImplRegisterV2::OpImplRegisterV2(const OpImplRegisterV2 &other) : impl_(new OpImplRegisterV2Impl{ other.impl_->type }) {}
OpImplRegisterV2::~OpImplRegisterV2() = default;

OpImplRegisterV2 &OpImplRegisterV2::InferShape(InferShapeKernelFunc f)
{
    functions()["shape " + impl_->type] = reinterpret_cast<void *>(f);
    return *this;
}

OpImplRegisterV2 &OpImplRegisterV2::InferDataType(InferDataTypeKernelFunc f)
{
    functions()["dtype " + impl_->type] = reinterpret_cast<void *>(f);
    return *this;
}

size_t RuntimeAttrs::GetAttrNum() const { return *reinterpret_cast<const size_t *>(this); }

const void *RuntimeAttrs::GetPointerByIndex(size_t i) const // a count, 40 bytes, an offset for each
{
    const char *start = reinterpret_cast<const char *>(this);
    size_t offset;
    if (i >= GetAttrNum())
        return nullptr;
    std::memcpy(&offset, start + 48 + 8 * i, sizeof offset);
    return start + offset;
}
} // namespace gert

extern "C" void *registered(const char *what) // "shape AddCustom"
{
    const auto found = gert::functions().find(what);
    return found == gert::functions().end() ? nullptr : found->second;
}
