import { type ComponentProps, useEffect, useState } from "react";

import { imageSource, isBundle } from "../../api/bundle";

type Props = Omit<ComponentProps<"img">, "src"> & {
  /** The image's address in the API. */
  readonly place: string;
};

/** An address without an image behind it: the element reports an error. */
const NONE = "data:,";

/** An image of a sample; in a bundle it comes out of a pack. */
export function Picture({ place, alt, ...rest }: Props) {
  const [found, setFound] = useState<{ readonly place: string; readonly src: string } | null>(null);
  useEffect(() => {
    if (!isBundle()) return;
    let left = false;
    const done = (src: string) => left || setFound({ place, src });
    void Promise.resolve(imageSource(place)).then(done, () => done(NONE));
    return () => {
      left = true;
    };
  }, [place]);
  return <img alt={alt} src={isBundle() ? (found?.place === place ? found.src : undefined) : place} {...rest} />;
}
