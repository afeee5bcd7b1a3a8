// refused: module syntax
return import.meta.url as string;
