import * as react from "react/jsx-runtime";
import { shown } from "./shown";

type Make = typeof react.jsx;

export const Fragment = react.Fragment;
export const jsx: Make = (type, props, key) => react.jsx(type, props && shown(type, props as Record<string, unknown>), key);
export const jsxs: Make = (type, props, key) => react.jsxs(type, props && shown(type, props as Record<string, unknown>), key);
