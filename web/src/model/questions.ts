/** Questions of an agent, with their options. */
import type { Json } from "../api/types";
import { isObject } from "./turn";

export interface QuestionItem {
  id: string;
  text: string;
  options: { label: string; description: string }[];
}

export function readQuestions(value: Json): QuestionItem[] {
  if (!Array.isArray(value)) return [];
  return value.filter(isObject).map((question, index) => ({
    id: String(question["id"] ?? index + 1),
    text: String(question["question"] ?? question["text"] ?? question["header"] ?? ""),
    options: (Array.isArray(question["options"]) ? question["options"] : [])
      .filter((option): option is { [key: string]: Json } | string => isObject(option) || typeof option === "string")
      .map((option) =>
        typeof option === "string"
          ? { label: option, description: "" }
          : { label: String(option["label"] ?? option["text"] ?? ""), description: String(option["description"] ?? "") },
      ),
  }));
}
