// The READs that refresh an old map for one key: the header, then one page of the directory.
//
//   span = refresh.Begin()
//   refresh.Take(READ(span), map, hash)      kMore: READ refresh.span() next
//                                            kDone: the page's entries are in the map

#ifndef OSPREY_INDEX_READER_DIRECTORY_REFRESH_H_
#define OSPREY_INDEX_READER_DIRECTORY_REFRESH_H_

#include <cstdint>

#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/reader/directory_cache.h"

namespace osprey::index {

// Not thread-safe.
class DirectoryRefresh {
 public:
  enum class Taken {
    kMore,
    kDone,
    kTorn,      // READ span() again, or begin again
    kNonsense,  // no writer wrote these bytes
  };

  // Returns the READ of the header.
  ReadSpan Begin() {
    in_page_ = false;
    return span();
  }
  // The READ under way: of a page, or of the header.
  bool in_page() const { return in_page_; }
  ReadSpan span() const {
    return in_page_ ? DirectoryCache::PageSpan(page_) : DirectoryCache::HeaderSpan();
  }
  // Takes exactly the bytes of span() into `map`. `hash` is the key's.
  Taken Take(ByteSpan bytes, DirectoryCache& map, KeyHash hash) {
    switch (in_page_ ? map.TakePage(page_, bytes) : map.TakeHeader(bytes)) {
      case DirectoryCache::Taken::kTorn:
        return Taken::kTorn;
      case DirectoryCache::Taken::kNonsense:
        return Taken::kNonsense;
      case DirectoryCache::Taken::kYes:
        break;
    }
    if (in_page_) return Taken::kDone;
    in_page_ = true;
    page_ = map.PageOf(hash);  // kept: other lookups may deepen the map while this page is READ
    return Taken::kMore;
  }

 private:
  bool in_page_ = false;
  uint32_t page_ = 0;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_DIRECTORY_REFRESH_H_
