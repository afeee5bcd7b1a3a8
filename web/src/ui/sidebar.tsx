/** The side bar: sessions, and the way to the other views. */
import type { Signal } from "@preact/signals";

import { href, location, navigate } from "../router";
import { signOut, webSession } from "../state/auth";
import { attempt } from "../state/notices";
import { THEMES, theme } from "../state/theme";
import { ApprovalTrayButton } from "./approval_tray";
import { IconButton } from "./controls";
import { Icon, type IconName } from "./icons";
import { SessionList } from "./session_list";

const VIEWS: readonly { path: string; label: string; icon: IconName }[] = [
  { path: "/catalog", label: "Catalog", icon: "catalog" },
  { path: "/playground", label: "Playground", icon: "play" },
  { path: "/operate", label: "Operate", icon: "pulse" },
  { path: "/settings", label: "Settings", icon: "settings" },
];

export function Sidebar({ isOpen }: { isOpen: Signal<boolean> }) {
  return (
    <>
      <header class="phone-bar">
        <IconButton icon="menu" label="Menu" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)} />
        <a class="brand" href={href("/")}>
          Nacre
        </a>
        <span class="spacer" />
        <ApprovalTrayButton />
        <IconButton icon="plus" label="New session" onClick={() => navigate("/")} />
      </header>
      <div class="sidebar-backdrop" onClick={() => (isOpen.value = false)} />
      <nav class="sidebar" aria-label="Sessions and views">
        <div class="sidebar-top">
          <a class="brand" href={href("/")}>
            Nacre
          </a>
          <span class="spacer" />
          <ApprovalTrayButton />
          <IconButton icon="plus" label="New session" onClick={() => navigate("/")} />
        </div>
        <SessionList />
        <ul class="view-links">
          {VIEWS.map(({ path, label, icon }) => (
            <li key={path}>
              <a href={href(path)} aria-current={location.value.path.startsWith(path) ? "page" : undefined}>
                <Icon name={icon} />
                {label}
              </a>
            </li>
          ))}
        </ul>
        <div class="sidebar-bottom">
          <ThemeSwitch />
          {webSession.value?.authMode !== "none" && <IconButton icon="exit" label="Sign out" onClick={() => void attempt(signOut)} />}
        </div>
      </nav>
    </>
  );
}

function ThemeSwitch() {
  const icons = { system: "system", light: "sun", dark: "moon" } as const;
  return (
    <div class="segmented" role="radiogroup" aria-label="Theme">
      {THEMES.map((name) => (
        <button
          key={name}
          type="button"
          role="radio"
          aria-checked={theme.value === name}
          aria-label={name}
          title={`Theme: ${name}`}
          onClick={() => (theme.value = name)}
        >
          <Icon name={icons[name]} />
        </button>
      ))}
    </div>
  );
}
