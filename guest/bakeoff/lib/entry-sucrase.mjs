// sucrase through its public interface.
import { transform } from "sucrase";

const options = { transforms: ["typescript"], disableESTransforms: true, keepUnusedImports: true };
export const transformCell = (source) => transform(source, options);
