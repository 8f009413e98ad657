"""The words by which sentences name a label, deny it, doubt it or take it back, in a dozen languages.

A sentence names a label only where every word before the label in its clause is one of `CARRIERS`. So a word
missing here loses a reading and never causes a wrong one. `NEGATION`, `DOUBT` and `CORRECTION` apply to the
rest of the answer, in which any word may occur.

All words are in the form of `label_text.folded`: NFKC, lower case, straight quotes. In lists of words `_`
means white space and `*` any ending.
"""

from __future__ import annotations

import re

from hpcbench.parsers.label_text import OPEN


def _words(*lists: str) -> frozenset[str]:
    return frozenset(word for one in lists for word in one.split())


def _either(listed: str, unspaced: str = "") -> str:
    """A pattern of any of the words; words of scripts without spaces may be parts of longer words."""
    spaced = [re.escape(one).replace("_", r"\s+").replace(r"\*", r"\w*") for one in listed.split()]
    pattern = rf"(?:(?<!\w)|(?<=[{OPEN}]))(?:{'|'.join(spaced)})(?:(?!\w)|(?=[{OPEN}]))"
    return f"{pattern}|{'|'.join(unspaced.split())}" if unspaced else pattern


def _begins(listed: str, unspaced: str = "") -> re.Pattern[str]:
    return re.compile(rf"\s{{0,9}}(?:{_either(listed, unspaced)})")


# --- words before a label ---------------------------------------------------------------------------------

NOUNS = _words(
    "answer label class category type option choice classification result prediction output kind verdict",
    "conclusion",
    "ответ метка класс категория тип вариант вывод",
    "antwort klasse kategorie typ dokumenttyp bezeichnung fazit",
    "réponse étiquette classe catégorie choix",
    "respuesta etiqueta clase categoría tipo opción",
    "risposta etichetta categoria opzione resposta opção",
    "conclusión 답 정답 유형 분류 카테고리 라벨 답변 답은 정답은 유형은 분류는 카테고리는 라벨은 답변은",
    "الإجابة الجواب النوع الفئة cevap",
)
"""Nouns that announce the label: such a sentence is an answer, whatever the answer considered before."""

LETTERS = _words("letter буква буквы buchstabe lettre letra lettera")
"""Nouns that announce an option's letter: `letter B`."""

SORTS = _words(
    "class type category kind класс тип категория klasse typ kategorie classe catégorie clase tipo"
)
"""Nouns that form a name together with a letter: `Type A`."""

VERBS = _words(
    "is it's that's shows depicts displays represents",
    "это является представлен представлена представлено показан показана изображён изображена",
    "ist lautet zeigt est c'est montre représente es muestra è mostra é",
    "هي هو هذه هذا bir jest 이것은 문서는 이미지는",
)
"""Verbs and pronouns that state what a document is."""

ADVERBS = _words(
    "a an the probably likely most clearly definitely certainly obviously simply just indeed",
    "скорее всего вероятно очевидно явно точно однозначно определённо просто",
    "ein eine einen einer eines der die das wahrscheinlich eindeutig offensichtlich vermutlich klar",
    "un une le la l' d'une d'un bien probablement clairement sûrement certainement",
    "una el uno claramente probablemente seguramente",
    "il un' probabilmente chiaramente um uma provavelmente",
)
"""Articles, and words that make a statement stronger or slightly weaker with the same meaning."""

CARRIERS = (
    NOUNS
    | VERBS
    | ADVERBS
    | _words(
        "it this that these document image page picture photo scan file shown provided attached given",
        "above uploaded here my our final correct right best overall main predicted so therefore thus hence",
        "consequently and i we think believe conclude as sure okay ok",
        "appropriate suitable fitting typical standard scanned printed handwritten simple single",
        "form risk priority severity urgency rating animal object item product gender",
        "species genre intent emotion",
        "statement language grade status sentiment topic subject level quality currency country",
        "orientation score year month day city capital colour color expressed here's",
        "этот эта данный данная документ документа изображение мой вид я думаю считаю полагаю что",
        "итоговый окончательный правильный верный правильная верная",
        "поэтому следовательно значит итак таким образом",
        "язык тональность тема оценка утверждение статус страна валюта",
        "dies dieses diese dieser es dokument bild seite hier richtige korrekte endgültige meine",
        "ich denke glaube dass also daher deshalb somit folglich",
        "sprache stimmung thema aussage note währung land",
        "ce ceci cet cette document l'image bonne correcte finale ma je pense crois que qu'il donc ainsi",
        "langue sujet statut pays devise",
        "esto este esta documento imagen página correcta mi creo pienso entonces",
        "idioma sentimiento tema estado país moneda",
        "questo questa immagine l'immagine corretta credo che quindi",
        "isto imagem correta minha acho portanto o",
        "이 문서 이미지 المستند الوثيقة bu belge",
    )
)
"""Words before a label in its clause that change nothing."""

CJK_NOUNS = (
    "答案|标签|標籤|类型|類型|类别|類別|分类|分類|种类|種類|选项|選項|选择|选|结论|結論|答え|回答|正解|"
    "カテゴリー|カテゴリ|ラベル"
)
CJK_VERBS = "就是|是|为|為|属于|屬於|显示的|显示|は"
CJK_CARRIERS = re.compile(
    rf"(?:{CJK_NOUNS}|{CJK_VERBS}|这|這|该|該|此|本|文件|文档|文檔|图片|圖片|图像|图中|图|单据|單據|内容|"
    "正确|正確|最终|最終的な|最終|我认为|我認為|我的|我|一|张|張|份|个|個|种|只|条|页|封|中|的|很明显|显然|明显|因此|所以|故|"
    "だから|したがって|よって|これ|この|それ|その|書類|文書|画像|の|最も|適切な)+"
)
"""The same for scripts without spaces."""

ASPECTS = _words(
    "sentiment polarity emotion intent topic subject genre language country currency orientation status",
    "species animal gender form risk priority severity urgency rating grade score level quality stars",
    "тональность тема язык оценка статус stimmung thema sprache langue idioma",
)
"""Keys of JSON that may replace a key for the answer: `{"sentiment": "positive"}`."""

MEASURES = _words("risk priority severity urgency rating grade score level quality stars оценка")
"""Keys of these whose value may be a number: `{"score": 4}`."""

OTHER_KEYS = _words(
    "excluded rejected other alternative alternatives wrong least second runner previous former old example",
    "examples sample candidate candidates options choices considered expected original prompt question input",
    "max min maximum minimum",
)
"""Words of keys whose value is another label than the answer, or lists all labels."""

HEADINGS = _words("subject note attached тема sujet")
"""Carriers that also begin a line of a letter: `Subject: contract`. They count only where the line is all."""

FINAL = _words("final overall итоговый окончательный endgültige finale finalmente 最终 最終")
"""Words that mark an answer as final."""

_CLASSIFIED = "(?:classified|categori[sz]ed|identified|labell?ed|recogni[sz]ed) as"
SAME = re.compile(
    r"(?P<plain>\b(?:without (?:a |any )?doubt|no doubt|без (?:всякого )?сомнения|ohne zweifel|sin duda|"
    r"(?:in|on) (?:the|this) (?:image|picture|photo|page|document|scan)|(?:to|of) (?:the|your|this) question|"
    r"for (?:the|this) (?:document|image|page)|"
    r"of (?:the|this) (?:review|document|text|tweet|comment|article|message|email|sentence)|"
    r"i(?:'m| am) (?:confident|certain|sure|convinced) that|"
    r"(?:that )?you(?: have|'ve)? (?:provided|shared|uploaded|sent|gave)|"
    r"(?:an? |the )?(?:image|photo|picture|scan|copy) of|"
    r"на (?:этом |данном )?(?:изображении|картинке|странице|фото)|auf (?:dem|diesem) (?:bild|dokument)|"
    r"bei (?:dem|diesem) (?:dokument|bild)|hierbei)\b,?|毫无疑问,?|无疑)"
    r"|(?P<noun>\b(?:(?:type|kind|class|category) of document|(?:i|we)(?:'d|'ll| would| will)? "
    r"(?:choose|select|pick|go with)|"
    r"(?:tipo|type|clase|classe|categoría|catégorie|categoria) d[ei] documento?)\b)"
    r"|(?P<verb>\b(?:(?:appears|seems) to be|looks like|(?:image|picture|photo|scan) contains|"
    r"bild enthält|image contient|imagen contiene|immagine contiene|изображение содержит|"
    rf"(?:can|should|would) be {_CLASSIFIED}|is {_CLASSIFIED}|"
    r"(?:(?:i|we)(?:'d| would)? )?(?:classify|categori[sz]e|label) (?:it|(?:this|the)(?: \w+)?) as|"
    r"(?:belongs to|falls (?:in|into|under)) the (?:class|category|type)(?: of)?|"
    r"is (?:best )?described as|can be (?:best )?described as|(?:i|we)(?:'d| would) say(?: that)?|"
    r"handelt (?:es )?sich (?:hier(?:bei)? )?um|s'agit(?= d')|se trata de|si tratta di|trata-se de|to jest)"
    r"(?=\W|$))"
)
"""Phrases replaced by a simpler one: empty phrases, and long forms of `answer` and `is`."""

ASIDE = re.compile(
    r",\s?(?:скорее всего|вероятно|очевидно|видимо|конечно|безусловно|однозначно|"
    r"without (?:a |any )?doubt|no doubt|без сомнения|ohne zweifel|"
    r"most likely|probably|clearly|indeed|of course|obviously|in fact|wahrscheinlich|offensichtlich|"
    r"sans doute|bien sûr|sin duda|claramente),|(?<=は),"
)
"""Adverbs between commas, and the comma after the topic of a Japanese sentence."""

REFUSED = re.compile(
    r"\s*[(\[]\s*(?:wrong|incorrect|false|rejected|not?|nope|неверно|неправильно|falsch|faux|falso|错误|錯誤)"
    r"\s*[)\]]"
)
"""Denials of the label before them, even if the label is `no`: `no (wrong)`."""

REPLIES = _words(
    "是 是的 否 はい いいえ 예 네 아니요 아니오 sì",
    "yes no true false correct incorrect да нет верно неверно ja nein oui non sí vrai faux sim não",
)
"""Labels that a comma and a whole sentence may follow."""

NOES = _words("no нет nein non não nej nee hayır 否 不 不是 没有 いいえ 아니요 아니오 لا")
"""Labels after which a negation repeats the label: `No, it is not signed`."""

LEAD_IN = _begins(
    """
    based_on given_that given_the given_its since because as_it as_there judging considering looking_at
    according_to_its according_to_the_layout according_to_the_header according_to_the_title with_its
    after_analy* after_examin* after_review* after_inspect* after_looking after_careful*
    upon_review* upon_inspect* upon_examin* upon_closer clearly obviously overall ultimately finally
    according_to_the_document according_to_the_text according_to_the_picture according_to_the_photo
    from_the_image from_the_picture from_the_document from_the_text
    according_to_the_page according_to_the_table according_to_the_chart in_conclusion in_summary
    according_to_the_heading according_to_the_content according_to_the_image
    yes sure okay of_course i_think i_believe so therefore thus hence
    да судя_по так_как поскольку исходя_из на_основе скорее_всего думаю считаю
    полагаю я_думаю я_считаю поэтому следовательно значит итак таким_образом
    ja aufgrund da weil laut ich_denke ich_glaube also daher oui d'après selon puisque comme donc
    sí según como dado_que por_lo_tanto por_tanto sì poiché quindi sim portanto
    """,
    "根据 因为 由于 是的 所以 因此",
)
"""Beginnings of the part of a sentence before the label's clause."""

EVIDENCE = _begins(
    """
    based_on_the based_on_this based_on_its judging_by looking_at_the looking_at_this according_to_the_image
    according_to_the_document according_to_the_text according_to_the_picture судя_по исходя_из на_основе
    aufgrund d'après_l'image d'après_le_document según_la_imagen según_el_documento
    """,
    "根据",
)
"""Beginnings of these that a label may follow without a verb: `Based on the image, no.`"""

INVERTED = re.compile(
    r"(?:is|are|was|does|ist|est|est-ce|sind)\b|(?:es|è|é)\s(?:est[aeo]|es[aeo]|el|la|il|o|quest[ao])\b"
)
"""Beginnings of a clause that asks, even without a question mark."""

HANGING = _begins("that_this that_it that_the that_these что dass que qu'il che")
"""Beginnings of a sentence that is only a part of one."""

SUPPOSITION = _begins(
    """
    suppose assume imagine pretend hypothetically let's_say let's_suppose let's_assume
    let_us_say let_us_suppose let_us_assume предположим допустим представим angenommen nehmen_wir
    supposons imaginons supongamos imaginemos supponiamo suponhamos
    """,
    "假设 假如 假定",
)
"""Beginnings of a sentence after which nothing is claimed."""

# --- conclusions and reasons ------------------------------------------------------------------------------

_CONCLUDING = """
    so therefore thus hence consequently and_so and_therefore поэтому следовательно значит итак
    таким_образом
    also daher deshalb somit folglich donc ainsi por_lo_tanto por_tanto así_que
    quindi pertanto portanto 따라서
    """
_CONCLUDING_CJK = "所以 因此 だから したがって よって"

CONCLUSION = re.compile(
    rf"(?:{_either(_CONCLUDING)})(?!\s*,)"
    f"|{'|'.join(_CONCLUDING_CJK.split())}"
)
"""Words after which the answer follows, and before which the reasons are."""

CONCLUDED = _begins(_CONCLUDING + "in_conclusion to_conclude", _CONCLUDING_CJK)
"""The same at the beginning of a sentence, where a comma may follow."""

CONDITION = re.compile(
    _either("if unless were had_it suppos* assum* если wenn falls si se", "如果 若 假如 もし")
)
"""Words that make a conclusion conditional, so that it is none."""

BECAUSE = re.compile(
    r"[,:]?\s{0,3}(?:(?:because|since|as (?:it|there|the)|потому что|так как|поскольку|weil|denn|da|parce qu|"
    r"car|porque|ya que|perché|poiché)(?!\w)|因为|由于)"
)
EXPLANATION = re.compile(
    r"(?<!\w)(?:explanation|reasons?|reasoning|rationale|justification|"
    r"объяснение|пояснение|обоснование|причина|begründung|erklärung|explication|raison|"
    r"explicación|razón|justificación|motivo|spiegazione|explicação|解释|解釋|理由|原因|说明|説明)\s{0,3}:"
)
"""Beginnings of reasons, in which a negation is about something else."""

# --- words after a label ----------------------------------------------------------------------------------

CONNECTOR = re.compile(
    r"\s+(?:as|from|issued|dated|with|by|that|which|showing|containing|listing|for|addressed|"
    r"от|для|который|которая|von|vom|für|mit|über|avec|pour|qui|émise|datée|con|para|emitida|com)(?!\w)"
)
"""Words that may follow a label after a verb: they add details of the same thing."""

VERDICT = re.compile(
    r"\s*(?:is|seems|appears) (?:the )?(?:correct|right|best|most likely|final)"
    r"(?: (?:answer|option|choice|label|class|category|one))?|\s*is the (?:answer|label|class|category)"
    r"|\s*[—-] (?:это )?(?:правильный|верный) ответ"
    r"|\s*ist (?:die )?(?:richtige antwort|richtig|korrekt)|\s*ist"
    r"|\s*(?:document|class|category)|\s*(?:です|である|だ)|\s*(?:입니다|이다|예요|이에요)|类型|类别|类"
)
"""Words that may follow a label and end its sentence."""

CONTRAST = re.compile(
    r"\s?,?\s?(?:(?:and|but|а|und|et|y|e|而)\s?)?(?:not|не|nicht|keine?n?|pas|no|non|não|不是|并非)\s?"
    r"(?:(?:an?|the|ein|eine|einen|un|une|una|um|uma|为|一张)\s)?[\"'(]?"
)
"""Words between a label and a denied label: `invoice, not a receipt`."""

COURTESY = _begins(
    """
    let_me_know please_let_me_know would_you_like do_you_want feel_free if_you_need if_you_have if_you_want
    if_you_would is_there_anything дайте_знать если_вам если_у_вас sag_mir n'hésite* no_dudes
    """,
    "如果您",
)
"""Beginnings of a sentence that offers further help and is not about the document."""

# --- words anywhere ---------------------------------------------------------------------------------------

NEGATION = re.compile(
    _either(
        """
        not non none never neither nor nothing nobody nowhere nope cannot isnt arent wasnt dont doesnt
        didnt cant wont wouldnt couldnt shouldnt aint hardly barely scarcely rarely seldom wrong*
        incorrect* false* untrue mistak* erroneous* unlikely impossible reject* exclud* except rules_out
        ruled_out rule_out ruling_out rules_it_out rules_this_out deny denies denied lack lacks lacking
        disagree* far_from anything_but everything_but rather_than instead_of other_than opposite contrary
        by_no_means lie lied lying
        не нет ни никак никогда никто нельзя невозможно неверн* неправильн* неправда лож* ошиб* отнюдь
        вряд едва кроме вместо исключ* отсутств* отверг* нисколько
        nicht nichts kein keine keiner keinen keinem keines nie niemals nein weder statt anstatt sondern
        ausser falsch unmöglich kaum unwahrscheinlich ausgeschlossen alles_andere keinesfalls keineswegs
        mitnichten
        ne pas jamais aucun aucune ni sauf au_lieu faux fausse incorrecte guère loin_d* improbable exclu*
        nunca ninguno ninguna ningún jamás tampoco salvo excepto falso falsa incorrecto incorrecta
        imposible lejos_de en_lugar en_vez sino todo_menos né nessun nessuno nessuna tranne invece
        tutt'altro
        não nem nenhum nenhuma exceto em_vez niet geen nooit nee żaden nigdy değil hayır yok
        ليس ليست لا لم لن غير
        """,
        """
        非(?!常) 无(?!疑) 不 没 沒 無 未 否 勿 错 錯 除了 ない ません なく じゃな 違 誤
        아니 아닙 아님 않 없 못 틀
        """,
    )
    + rf"|(?:(?<!\w)|(?<=[{OPEN}]))no(?!\s+doubt)(?:(?!\w)|(?=[{OPEN}]))|(?<!\w)(?:\w+n't|n'\w+)(?!\w)"
    + r"|!(?=[=\w\ufffc])|¬|≠|\\(?:neg|not|sout|cancel|st)\b|<(?:s|del|strike)>"
)
"""Words and signs that deny."""

DOUBT = re.compile(
    _either(
        """
        or either maybe perhaps possibly possible could might may_be may_also may_well may_have unclear
        unsure uncertain undecided guess* ambiguous difficult hard_to if unless whether assum* suppos*
        hypothetical* allegedly so-called pretend* claims claim claimed said thought wonder* sort_of
        kind_of more_or_less so_to_speak in_a_way in_a_sense partly partially somewhat in_theory
        provided_it provided_that as_long_as on_condition subject_to to_tell
        happy_to_help glad_to_help please_upload please_provide please_share please_send please_attach
        cannot_determine can't_determine cannot_tell can't_tell don't_know do_not_know
        cannot_answer can't_answer not_sure not_certain
        unable_to_determine unable_to_tell unable_to_say unable_to_read unable_to_answer
        theoretically technically at_first_glance apparently seemingly they_say people_say
        кажется вроде
        или либо возможно может наверное если ли сомн* неясно непонятно якобы будто бы мог* затрудняюсь
        oder entweder vielleicht möglicherweise eventuell könnte wäre würde wenn ob unklar unsicher
        angeblich sofern vorausgesetzt à_condition siempre_que при_условии
        ou soit peut-être peut pourrait serait incertain incertaine possiblement doute
        quizá quizás tal_vez puede podría sería posiblemente acaso o_un o_una o_algo
        forse potrebbe sarebbe oppure talvez poderia seria pode 또는 혹은 아마* 만약 ربما أو إذا belki veya
        """,
        "或 也许 可能 如果 若 是否 吗 嗎 似乎 假如 要么 与其 只要 前提 かも もし または でしょうか",
    )
    + r"|(?<!\w)si(?!\w|\s+tratta)"
    + r"|(?<!\w)falls(?!\w|\s+(?:in|into|under)\b)|(?<!without )(?<!no )(?<!a )(?<!any )(?<!\w)doubt\w*"
)
"""Words that leave the answer open."""

CORRECTION = re.compile(
    _either(
        """
        wait actually sorry oops kidding joking apolog* never_mind scrap_that strike_that forget_that
        scratch disregard_that disregard_the ignore_that ignore_the edit: edited: update:
        i_lied take_that_back take_it_back my_bad changed_my_mind change_my_mind correction reconsider*
        second_thought second_thoughts hmm hmmm but however although though yet on_reflection
        подожди* стоп вернее точнее извин* исправ* но однако хотя впрочем
        warte moment doch entschuldigung korrektur aber jedoch obwohl allerdings vielmehr
        attend* pardon désolé désolée mais cependant toutefois plutôt
        espera* perdón pero sin_embargo aunque mejor_dicho corrección
        aspetta scusa ma però tuttavia mas porém desculp* 하지만 그러나 잠깐
        """,
        "但 等等 其实 抱歉 更正 不过 然而 しかし でも",
    )
    + "|[=-]>|[→⇒⟶➔]"
)
"""Words that take a statement back, and arrows to another one."""

LEADING = re.compile(
    _either(
        """
        approx aprox ca cca cf vs eg ie max min resp fig figs vol pp incl nr env pág núm abb
        e.g e._g i.e i._e z.b z._b d.h d._h u.a u._a u.u u._u p.ej p._ej p.ex p._ex p.es p._es par_ex
        bzw vgl evtl ggf sog ungef inkl exkl
        напр см ср прибл ок стр рис т.е т._е т.н т._н т.к т._к гл им ул проф тов
        dr mr mrs ms prof st mt rev hon hr fr sr sra srta mme mlle dott sig dipl
        """
    )
    + r"\Z"
)
"""Abbreviations before further words, and titles before names: their full stop ends no sentence."""

TRAILING = re.compile(
    _either(
        """
        etc al inc ltd co corp dept jan feb mar apr jun jul aug sep sept oct nov dec usw ecc др т.д т._д т.п
        т._п
        """
    )
    + r"\Z"
)
"""Abbreviations whose full stop may end a sentence, if another sentence clearly begins."""

_NUMBERS = _words(
    "one two three four five six seven eight nine ten eleven twelve twenty thirty hundred uno dos tres",
    "cuatro cinco seis siete ocho nueve diez due tre quattro cinque sei sette otto nove dieci",
)
NUMBER_OF = re.compile(
    rf"\b[Nn][Oo]\.\s{{1,9}}(?:of\b|\d|(?:{'|'.join(sorted(_NUMBERS))}|[ivx]+|[IVX]{{2,}})(?!\w)"
    rf"|(?:[A-Z]|{'|'.join(one.title() for one in sorted(_NUMBERS))})\W{{0,3}}\Z|[A-Z] of\b)"
)
"""The word number as an abbreviation: `No. 7`, `No. seven`, `No. B`."""

TAKEN_BACK = re.compile(
    _either(
        """
        wait actually sorry oops kidding apolog* never_mind scrap_that strike_that forget_that scratch_that
        disregard_that i_lied take_that_back take_it_back my_bad correction reconsider* on_second_thought
        i_was_wrong
        подожди* стоп извин* исправ* warte entschuldigung korrektur pardon désolé perdón corrección
        """,
        "等等 抱歉 更正",
    )
)
"""Corrections that take an answer back even within its reasons."""

TRUTH = re.compile(
    _either(
        """
        right true correct sure certain answer case quite really exactly so прав* верно уверен* ответ
        richtig sicher vrai sûr verdad seguro cierto
        """,
        "对",
    )
)
"""Words about the answer itself. After `no`, a negation is about the document, but not next to one of these.
"""
